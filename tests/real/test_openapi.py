"""`/openapi.json` of a real Lapwing: schemathesis asks by it, good queries and bad ones, and every answer is as documented."""

import http.client
import json
import sys
import subprocess

import pytest
import schemathesis

from documented import assert_documented, validator
from process import wait_for
from test_admin_reads import Asked

pytestmark = pytest.mark.beside

TOKEN = "correct-horse-battery-staple"
STREAMS = {"/stats/stream", "/record"}
"""Their answers end when the client leaves."""
LEAVE = "/leave"
"""After it `/readyz` answers 503, as it must: tests/real/test_pods.py asks it."""
NOT_A_QUERY = {"/livez", "/readyz", "/", "/openapi.json"}


@pytest.fixture(scope="module")
def lapwing(processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url)
    for n in range(20):
        lapwing.infer(f"m{n % 3}")
    wait_for(lambda: len(lapwing.json("/exchanges")["exchanges"]) == 20, 10, "all are recorded")
    return lapwing


def test_every_answer_is_as_documented(lapwing, tmp_path):
    """No 5xx, no undocumented status, content type or member, and no bad query that is taken."""
    report = tmp_path / "report.txt"
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{lapwing.admin}/openapi.json"]
    command += ["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,positive_data_acceptance"]
    command += [flag for path in {*STREAMS, LEAVE} for flag in ("--exclude-path", path)]
    command += ["--max-examples", "40", "--seed", "7", "--generation-deterministic", "--phases", "examples,coverage,fuzzing", "--no-color", "--request-timeout", "30"]
    with open(report, "w") as out:
        done = subprocess.run(command, stdout=out, stderr=out, timeout=300, cwd=tmp_path)
    text = report.read_text()
    assert done.returncode == 0, text[-8000:]
    assert "generated" in text and "No issues found" in text, text[-8000:]


def document(lapwing, token=None):
    return lapwing.json("/openapi.json", token)


def test_an_answer_with_another_member_would_be_found(lapwing):
    """The schema of /stats is closed enough to see a changed answer."""
    schema = schemathesis.openapi.from_dict(document(lapwing))
    operation = schema["/stats"]["GET"]

    def checked(body):
        response = schemathesis.Response(status_code=200, headers={"content-type": ["application/json"]}, content=json.dumps(body).encode(), request=None, elapsed=0.1, verify=False)
        operation.validate_response(response)

    good = lapwing.json("/stats?window=all")
    checked(good)
    for change in ({"window": 7}, {"series": {}}, {"covered_ns": -1}):
        with pytest.raises(Exception, match="(?i)schema|valid|minimum|type"):
            checked({**good, **change})
    without = dict(good)
    del without["profiler"]
    with pytest.raises(Exception, match="profiler"):
        checked(without)


def test_the_configuration_is_as_documented(processes, binary, raw_server):
    budgets = '{"POST /v2/models/{model}/infer": {p99: 20ms}, "*": {p50: 1s}}'
    more = {"otlp_forward": "http://127.0.0.1:9", "otlp_forward_headers__authorization": "Bearer secret", "proxy__max_request_bytes": "1MiB"}
    spans = "[{name: redis.*, stage: hydration}, {attribute: rpc.service, value: feast.*, stage: hydration}]"
    lapwing = Asked(processes, binary, raw_server.url, metrics__budgets=budgets, attribution__spans=spans, **more)
    for answer in (asked := lapwing.json("/config")), {**asked, "origins": {}}:
        assert_documented(lapwing, "/config", answer)
    values = asked["values"]
    for wrong in ({"upstream": ["a"]}, {"proxy": "on"}, {"proxy": {**values["proxy"], "workers": "two"}}, {"attribution": {"spans": [7]}}):
        with pytest.raises(ValueError):
            validator(lapwing, "/config").validate({**asked, "values": {**values, **wrong}})


def test_an_event_of_the_stream_is_an_answer_of_stats(lapwing):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
    connection.request("GET", "/stats/stream?window=all")
    response = connection.getresponse()
    documented = document(lapwing)["paths"]["/stats/stream"]["get"]["responses"]["200"]["content"]
    assert response.status == 200 and list(documented) == [response.headers["content-type"]]
    event = json.loads(response.readline().removeprefix(b"data: "))
    connection.close()
    assert event.keys() == lapwing.json("/stats?window=all").keys()
    assert event["series"] == lapwing.json("/stats?window=all")["series"]


def test_what_needs_a_token_says_so(processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url, admin_token=TOKEN)
    assert lapwing.get("/openapi.json")[0] == 401
    seen = set()
    for path, operations in document(lapwing, TOKEN)["paths"].items():
        for method, operation in operations.items():
            connection = http.client.HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
            connection.request(method.upper(), path)
            status = connection.getresponse().status
            connection.close()
            guarded = {"admin_token": []} in operation["security"]
            assert (status == 401) == guarded and (str(status) in operation["responses"]), (method, path, status)
            assert ("401" in operation["responses"]) == guarded, path
            seen.add(guarded)
    assert seen == {True, False}


def test_no_other_origin_may_read(lapwing):
    for path in ("/", "/stats", "/openapi.json", "/stats?window=2m", "/none"):
        for method in ("GET", "HEAD", "OPTIONS"):
            connection = http.client.HTTPConnection("127.0.0.1", lapwing.admin, timeout=30)
            connection.request(method, path, headers={"origin": "http://elsewhere", "access-control-request-method": "GET"})
            response = connection.getresponse()
            response.read()
            names = {name.lower() for name, _ in response.getheaders()}
            assert response.headers["cache-control"] == "no-store", (method, path)
            assert not any(name.startswith("access-control-") for name in names) and "etag" not in names
            assert method != "OPTIONS" or response.status in (404, 405)
            connection.close()
