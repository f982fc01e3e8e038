"""A FastAPI server with its own protocol: a custom rule locates its model and its rows."""

import http.client
import json

import pytest

from conftest import Served
from lapwing import Counted
from process import wait_for

pytestmark = pytest.mark.beside
ROW = [i / 30 for i in range(30)]
CONFIG = """\
attribution: {expect_spans: never}
protocol:
  custom:
    - route: POST /predict
      model: {header: x-model}
      rows: {json: /rows}
      entities: {json: /key}
      primary: row
"""


@pytest.fixture(scope="module")
def served(by_http, start_lapwing, tmp_path_factory):
    """The model server behind a Lapwing with the rule."""
    path = tmp_path_factory.mktemp("config") / "lapwing.yaml"
    path.write_text(CONFIG)
    lapwing = start_lapwing(by_http.direct, config=path)
    wait_for(lapwing.is_ready, 20, "lapwing is ready")
    return Served(by_http.port, lapwing)


def predict(served, rows, model="mlp", report="header"):
    connection = http.client.HTTPConnection("127.0.0.1", served.lapwing.port, timeout=30)
    body = json.dumps({"key": "user:1", "rows": [ROW] * rows, "stages": {"model_forward": {"ms": 1 + rows / 100}}})
    connection.request("POST", f"/predict?report={report}", body, {"content-type": "application/json", "x-model": model})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.status == 200 and len(answer["classes"]) == rows, answer
    return answer


@pytest.fixture(scope="module")
def asked(served):
    """(rows, answer, exchange): requests of 1 and of 256 rows, in turn."""
    sizes = [1, 256] * 10
    with Counted(served.lapwing, len(sizes)):
        answers = [predict(served, n) for n in sizes]
    exchanges = sorted(served.lapwing.exchanges(), key=lambda e: e["started_at"])
    return list(zip(sizes, answers, exchanges, strict=True))


def test_model_and_rows_are_what_the_rule_says(asked):
    for rows, _, exchange in asked:
        assert (exchange["route"], exchange["model"], exchange["server"]) == ("POST /predict", "mlp", None)
        assert exchange["work"]["primary"] == "row"
        assert exchange["work"]["row"] == {"amount": rows, "basis": "counted"}
        assert exchange["work"]["entity"] == {"amount": 1, "basis": "counted"}
        assert exchange["class"] == rows.bit_length() - 1


def test_time_per_row_is_the_servers_own(asked):
    for rows, answer, exchange in asked:
        forward = exchange["per_unit"]["forward"]
        assert (forward["unit"], forward["units"]) == ("row", rows)
        assert forward["ps"] == pytest.approx(answer["truth_ns"]["model_forward"] * 1000 / rows, rel=0.001)
        assert exchange["per_unit"]["hydration"]["unit"] == "entity"


def test_two_populations_are_told_apart(served, asked):
    (series,) = [s for s in served.lapwing.series() if s["model"] == "mlp"]
    small, large = sorted(series["classes"], key=lambda c: c["class"])
    assert (small["from"], small["to"], small["count"]) == (1, 1, 10)
    assert (large["from"], large["to"], large["count"]) == (256, 511, 10)
    forward = series["per_unit"]["forward"]
    per_row = sorted(e["per_unit"]["forward"]["ps"] for _, _, e in asked)
    assert forward["units"] == series["units"]["row"] == 10 * 257
    # one row alone takes at least a millisecond, one of 256 about 14 µs
    assert per_row[9] < 1e8 < 9e8 < per_row[10]
    assert forward["p50_ps"] == pytest.approx(per_row[9], rel=0.009) and forward["max_ps"] == per_row[-1]


def test_models_are_series_of_their_own(served, asked):
    with Counted(served.lapwing, 2):
        predict(served, 1, model="other")
        predict(served, 1, model="other")
    (other,) = [s for s in served.lapwing.series() if s["model"] == "other"]
    assert other["count"] == 2
