"""A live split whose outputs are compared: a FastAPI with an ONNX file in fp32, and one with the same file in int8, each asked again for
what the other answered."""

import itertools
import threading

import pytest

from lapwing import NO_SPANS
from process import wait_for
from shadowing import ask, body_of, shadow

pytestmark = pytest.mark.beside

LEARNT = 8
"""More exchanges than a route takes to be learnt as safe to repeat."""


@pytest.fixture(scope="module")
def servers(start_server, small_mlp, models_folder):
    """The ports of both."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    int8 = models_folder / "small_mlp_int8.onnx"
    quantize_dynamic(small_mlp, int8, weight_type=QuantType.QInt8)
    return {"fp32": start_server(), "int8": start_server(model=int8)}


@pytest.fixture
def split(start_lapwing, servers, tmp_path):
    def start(tolerance, settings):
        file = tmp_path / "lapwing.yaml"
        of = "".join(f"  {name}: {{url: 'http://127.0.0.1:{port}'}}\n" for name, port in servers.items())
        shadowed = f"shadow:\n  sample: 100%\n  compare: {{tolerance: {tolerance}}}\n"
        file.write_text(f"upstreams:\n{of}split:\n  candidate: int8\n  key: header:x-user\n  compare: true\n{settings}{shadowed}")
        lapwing = start_lapwing(None, config=file, env=NO_SPANS)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return lapwing

    return start


def shown(lapwing):
    return lapwing.json("/split?format=json")


class Users:
    """Users who ask in turn, each with rows of their own."""

    def __init__(self, lapwing, users=400):
        self.lapwing, self.users, self.stopped = lapwing, itertools.cycle(range(users)), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.statuses = []

    def run(self):
        for user in self.users:
            if self.stopped.wait(0.005):
                return
            self.statuses.append(ask(self.lapwing.port, body_of(2, user), {"x-user": f"user-{user}"})[0])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()
        assert set(self.statuses) == {200}


def test_a_candidate_that_answers_otherwise_gets_nothing_more(split):
    lapwing = split("{absolute: 1e-6, relative: 0}", "  share: 50%\n  stop_on: {mismatch: 5%}\n")
    with Users(lapwing):
        wait_for(lambda: shown(lapwing)["state"] == "stopped", 90, "it stops")
    report = shown(lapwing)
    assert report["share"] == 0 and "compared outputs differ" in report["reason"], report["reason"]
    assert "the limit is 5%" in report["reason"]
    assert report["outputs"]["mismatched"] > 0.9 * report["outputs"]["compared"] > 15, "int8 is not fp32 to six digits"
    assert "  outputs: " in lapwing.get("/split")[2].decode()


def test_within_the_tolerance_it_rises_and_each_side_is_asked_what_the_other_answered(split):
    lapwing = split("{absolute: 0.2, relative: 0}", "  ramp: [30%, 50%]\n  step: 10s\n  stop_on: {mismatch: 5%, errors: 5%}\n")
    with Users(lapwing):
        wait_for(lambda: shown(lapwing)["share"] == 0.5, 90, "it rises")
        wait_for(lambda: shown(lapwing)["outputs"]["compared"] > 100, 60, "outputs are compared")
    report = shown(lapwing)
    assert (report["outputs"]["mismatched"], report["outputs"]["unjudged"], report["state"]) == (0, 0, "steady"), report["outputs"]
    assert report["figures"]["total"]["pairs"] > 20
    targets = {one["name"]: one for one in shadow(lapwing)["targets"]}
    assert set(targets) == {"split-candidate", "split-baseline"}
    requests = report["requests"]
    # each side's copies are of the other's requests: never more than those
    assert LEARNT < targets["split-candidate"]["sent"] <= requests["baseline"], (targets, requests)
    assert LEARNT < targets["split-baseline"]["sent"] <= requests["candidate"], (targets, requests)
    assert {one["paired"] > 0 for one in targets.values()} == {True}
    # without a key the split places nothing, and neither side is the other one
    before = shadow(lapwing)["dropped"].get("no_target", 0)
    assert ask(lapwing.port, body_of(2))[0] == 200
    wait_for(lambda: shadow(lapwing)["dropped"].get("no_target", 0) == before + 1, 20, "that it goes nowhere is counted")
