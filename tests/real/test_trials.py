"""A lever on and off in turn between uvicorn servers: what they see of it, what is found out of it, and that harm turns it off."""

import subprocess
import time

import pytest

from lapwing import NO_SPANS
from named_servers import Server, sample
from process import wait_for
from test_split import Users

pytestmark = pytest.mark.beside

ROUND = "  block: 1s\n  drop: 100ms\n"
UNGUARDED = "  stop_on: {p50_ratio: off, p99_ratio: off, errors: off, throughput_ratio: off}\n"


@pytest.fixture
def trial(start_lapwing, tmp_path, logs):
    """Starts two servers and Lapwing, which tries a lever."""

    def start(settings, slow=None, policy="round_robin"):
        servers = {
            "a": Server("a", tmp_path, logs, MS="10"),
            "b": Server("b", tmp_path, logs, **(slow or {"MS": "10"})),
        }
        of = "".join(f"  {name}: {{url: '{server.url}'}}\n" for name, server in servers.items())
        file = tmp_path / "lapwing.yaml"
        section = f"trial:\n{settings}" if settings else ""
        file.write_text(f"upstreams:\n{of}upstream_policy: {policy}\n{section}")
        lapwing = start_lapwing(None, config=file, env=NO_SPANS)
        wait_for(lapwing.is_ready, 20, "lapwing is ready")
        return servers, lapwing, file

    return start


def shown(lapwing):
    return lapwing.json("/trials?format=json")


def samples(lapwing, name):
    """The values of a family of the trial by its label `side`, or by nothing."""
    lines = [line for line in lapwing.metrics().splitlines() if line.startswith(f"{name}{{")]
    return {line.split('side="')[1].split('"')[0] if "side=" in line else "": float(line.split()[-1]) for line in lines}


def share_of_b(users, seconds):
    """The share of the requests of some time that `b` answers."""
    before = {user: len(names) for user, names in users.answers.items()}
    time.sleep(seconds)
    new = [name for user, names in users.answers.items() for name in names[before[user] :]]
    return new.count("b") / max(len(new), 1)


def test_the_upstreams_see_blocks_of_both_kinds(trial):
    """With 6 clients at once and one slow server of two, turns put half of the requests on it, and fewest requests few."""
    _, lapwing, _ = trial(f"  lever: least_requests\n  block: 2s\n  drop: 100ms\n{UNGUARDED}", slow={"MS": "100"})
    shares = {True: [], False: []}
    with Users(lapwing.port, 100) as users:

        def both():
            before = shown(lapwing)
            if before["next_in_ns"] < 1.5e9:
                return False
            time.sleep(0.3)  # what was sent before the change is answered
            share = share_of_b(users, 0.9)
            after = shown(lapwing)
            if after["next_in_ns"] < before["next_in_ns"]:  # it is the same block
                shares[before["is_on"]].append(share)
            return all(len(found) >= 4 for found in shares.values())

        wait_for(both, 90, "both kinds of blocks are seen", 0.05)
    on, off = (sorted(found)[len(found) // 2] for found in (shares[True], shares[False]))
    assert on < 0.35 < 0.42 < off, shares
    report = shown(lapwing)
    assert report["on"]["blocks"] >= 3 and report["off"]["blocks"] >= 3 and report["state"] == "running", report
    assert report["on"]["requests_per_s"] > 1.3 * report["off"]["requests_per_s"], report
    counted = samples(lapwing, "lapwing_trial_requests_total")
    assert counted["on"] >= report["on"]["requests"] > 100 and counted["dropped"] > 0
    assert samples(lapwing, "lapwing_trial_blocks_total")["on"] >= report["on"]["blocks"]


def test_a_lever_that_harms_is_turned_off(trial):
    """`round_robin` is on trial where fewest requests are configured: half of the requests meet the slow server."""
    _, lapwing, file = trial(f"  lever: round_robin\n{ROUND}", slow={"MS": "100"}, policy="least_requests")
    with Users(lapwing.port, 100) as users:
        wait_for(lambda: shown(lapwing)["state"] == "stopped", 90, "it is turned off")
        assert share_of_b(users, 2) < 0.3
    report = shown(lapwing)
    assert report["reason"] and "while it is on" in report["reason"] and not report["is_on"], report["reason"]
    assert "worse" in [effect["verdict"] for effect in report["effects"].values()]
    assert samples(lapwing, "lapwing_trial_stopped") == {"": 1} and samples(lapwing, "lapwing_trial_on") == {"": 0}
    text = lapwing.get("/trials")[2].decode()
    assert text.startswith("lever `round_robin`, for ") and ": stopped, and off until" in text, text
    assert "trial: stopped; the lever is off" in lapwing.process.output()
    # another setting begins anew
    file.write_text(file.read_text().replace("block: 1s", "block: 2s"))
    wait_for(lambda: shown(lapwing)["state"] == "running", 20, "it begins anew")
    file.write_text(file.read_text().split("trial:")[0])
    wait_for(lambda: shown(lapwing) is None, 20, "it ends")
    assert "lapwing_trial_" not in lapwing.metrics()


def test_a_lever_that_does_nothing_has_no_verdict(trial):
    """Nothing is written apart here, so `quick_ack` has nothing to do."""
    _, lapwing, _ = trial(f"  lever: quick_ack\n{ROUND}")
    with Users(lapwing.port, 100):
        wait_for(lambda: sum(shown(lapwing)["blocks"].values()) >= 25, 60, "blocks end")
    report = shown(lapwing)
    assert report["state"] == "running" and report["on"]["failed"] == report["off"]["failed"] == 0, report
    assert {effect["verdict"] for effect in report["effects"].values()} <= {"undecided", "same"}, report["effects"]
    assert report["effects"]["p50"]["coins"] >= 15 and report["effects"]["errors"]["low"] is not None
    assert report["latest"][0]["side"]["requests_per_s"] > 50


def test_without_a_trial_there_is_nothing_of_it(trial):
    _, lapwing, _ = trial("")
    with Users(lapwing.port, 10):
        wait_for(lambda: sum(sample(lapwing, "lapwing_upstream_up").values()) == 2, 10, "both are up")
    assert "lapwing_trial" not in lapwing.metrics() and shown(lapwing) is None
    assert b"nothing is tried" in lapwing.get("/trials")[2] and lapwing.json("/config")["values"]["trial"]["lever"] == "off"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{lever: fast}", "trial.lever: fast"),
        ("{lever: least_requests, block: 3s}", "trial.drop: 2s: must be at most half of block, which is 3s"),
        ("{lever: quick_ack, max_time: 1s}", "trial.max_time: 1s: must be between 1m and"),
        ("{lever: quick_ack, stop_on: {throughput_ratio: 1.2}}", "trial.stop_on.throughput_ratio: 1.2: must be between 0.25 and 1"),
    ],
)
def test_faults_name_the_key(binary, tmp_path, settings, says):
    file = tmp_path / "lapwing.yaml"
    file.write_text(f"upstreams: {{a: {{url: 'http://h:1'}}, b: {{url: 'http://h:2'}}}}\ntrial: {settings}\n")
    checked = subprocess.run([binary, "check", "--config", str(file)], capture_output=True, text=True)
    assert checked.returncode != 0 and says in checked.stdout + checked.stderr, checked


def test_what_chooses_upstreams_needs_several(binary, tmp_path):
    file = tmp_path / "lapwing.yaml"
    file.write_text("upstream: http://h:1\ntrial: {lever: least_requests}\n")
    checked = subprocess.run([binary, "check", "--config", str(file)], capture_output=True, text=True)
    assert checked.returncode != 0 and "trial.lever: least_requests: chooses between `upstreams`" in checked.stdout + checked.stderr
