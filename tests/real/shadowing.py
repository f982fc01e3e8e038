"""Shadow-serving from outside: requests of the small MLP by the Open Inference Protocol, and what `/shadow` says of their copies."""

import http.client
import json
import subprocess

from lapwing import NO_SPANS
from process import wait_for

WIDTHS = (30, 64, 2)
"""Of the small MLP, which reads `x` and answers with `y`."""
SHADOW = {**NO_SPANS, "LAPWING_ATTRIBUTION__POLL": "off", "LAPWING_METRICS__RECENT_EXCHANGES": "4096"}
"""For upstreams that report their stages in `Server-Timing`."""


def body_of(rows, seed=0, **more):
    """A request of so many rows of the small MLP; `more` members of it."""
    data = [((seed + i) * 37 % 101) / 50 - 1 for i in range(rows * WIDTHS[0])]
    inputs = [{"name": "x", "shape": [rows, WIDTHS[0]], "datatype": "FP32", "data": data}]
    return json.dumps({"inputs": inputs, **more}).encode()


def post(port, path, body, headers=None, connection=None):
    """(status, body) of one call."""
    own = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    own.request("POST", path, body, headers or {})
    response = own.getresponse()
    answer = response.status, response.read()
    if not connection:
        own.close()
    return answer


def ask(port, body, headers=None, connection=None, model="m"):
    """(status, body) of one inference."""
    return post(port, f"/v2/models/{model}/infer", body, {"content-type": "application/json", **(headers or {})}, connection)


def shadow(lapwing):
    status, _, body = lapwing.get("/shadow", "application/json")
    assert status == 200, body
    return json.loads(body)


def target(lapwing, name):
    return {one["name"]: one for one in shadow(lapwing)["targets"]}[name]


NEVER_CAPTURED = ("unknown_route", "session")
"""Why a sampled request is not captured at all, whatever its body is."""


def dropped(of):
    return sum(count for reason, count in of["dropped"].items() if reason not in NEVER_CAPTURED)


def await_paired(lapwing, name, sampled):
    """The target, once every sampled request is paired or counted as dropped."""

    def settled():
        view = shadow(lapwing)
        one = {t["name"]: t for t in view["targets"]}[name]
        # while the target is left alone, nothing is captured
        before = view["dropped"].get("circuit_open", 0)
        settled = view["sampled"] + before == sampled and one["paired"] + dropped(one) + dropped(view) >= sampled
        return one if settled and lapwing.is_settled() else None

    return wait_for(settled, 30, f"{sampled} copies are paired", 0.2)


def await_compared(lapwing, name, n):
    """The target's outputs on its only route, once `n` of them were compared."""

    def found():
        outputs = list(target(lapwing, name)["outputs"].values())
        assert len(outputs) <= 1, [*target(lapwing, name)["outputs"]]
        return outputs[0] if outputs and outputs[0]["compared"] == n else None

    return wait_for(found, 30, f"{n} outputs are compared", 0.2)


def record(binary, lapwing, out, requests, call, *flags):
    """Records so many requests, which `call(n)` makes; the lines of the file."""
    command = [binary, "record", "--admin", f"127.0.0.1:{lapwing.admin}", "--out", str(out), "--sample", "100%"]
    recording = subprocess.Popen(
        [*command, "--for", "60s", "--max-requests", str(requests), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(out.exists, 10, "the recording has begun")
    for n in range(requests):
        call(n)
    said, error = recording.communicate(timeout=60)
    assert recording.returncode == 0, error
    assert f"{requests} requests" in said and "ended by requests" in said, said
    return [json.loads(line) for line in out.read_text().splitlines()]
