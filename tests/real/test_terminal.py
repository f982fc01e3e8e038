"""The commands for a shell: `lapwing stats` against `/stats`, the completions in a real bash, the manual in a real groff."""

import http.client
import json
import os
import re
import shutil
import subprocess

import pytest

from ports import free_port
from process import wait_for
from test_admin_reads import Asked

pytestmark = pytest.mark.beside
TOKEN = "correct-horse-battery-staple"
HOSTILE = "\x1b[2J\x1b]0;title\x07鸟"
"""A model's name that would clear the screen and set the terminal's title."""
SHOWN = r"\u{1b}[2J\u{1b}]0;title\u{7}鸟"


def run(binary, *args, **env):
    return subprocess.run([binary, *args], capture_output=True, timeout=30, env={**os.environ, **env})


def in_ns(text):
    number, unit = text.split()
    return float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]


def infer_hostile(lapwing):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    connection.request("POST", "/v1/completions", json.dumps({"model": HOSTILE, "prompt": "x"}), {"content-type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


@pytest.fixture(scope="module")
def lapwing(processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url)
    for n in range(30):
        lapwing.infer(f"m{n % 2}")
    infer_hostile(lapwing)
    wait_for(lambda: sum(one["count"] for one in lapwing.json("/stats?window=all")["series"]) == 31, 10, "all are counted")
    return lapwing


def test_the_table_has_the_figures_of_stats(binary, lapwing):
    asked = run(binary, "stats", "--admin", f"127.0.0.1:{lapwing.admin}", "--window", "all")
    assert asked.returncode == 0 and asked.stderr == b""
    shown = asked.stdout.decode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown), "nothing but text and line feeds"
    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in shown.strip().split("\n\n")}
    series = lapwing.json("/stats?window=all")["series"]
    assert len(blocks) == len(series) == 3
    assert sum(f"model {SHOWN} (" in title for title in blocks) == 1, list(blocks)
    for one in (one for one in series if one["model"] in ("m0", "m1")):
        (lines,) = [lines for title, lines in blocks.items() if title == f"{one['route']}, model {one['model']} ({one['upstream']})"]
        assert "15 requests: 15 ok" in lines[0]
        rows = {line.split()[0]: line for line in lines[2:]}
        for name, figures in [("total", one["total"]), *one["stages"].items()]:
            values = re.findall(r"\d[\d.]* (?:ns|µs|ms|s)\b", rows[name])
            expected = [figures[key] for key in ("mean_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns")]
            assert [in_ns(value) for value in values] == pytest.approx(expected, rel=0.006, abs=0.51), name
            assert rows[name].split()[1] == "15"
            assert name == "total" or f"{figures['share'] * 100:.1f} %" in rows[name]


def test_json_is_the_answer_of_stats(binary, lapwing):
    admin = f"127.0.0.1:{lapwing.admin}"
    asked = run(binary, "stats", "--admin", admin, "--window", "all", "--json")
    answer, expected = json.loads(asked.stdout), lapwing.json("/stats?window=all")
    assert asked.returncode == 0 and answer.keys() == expected.keys()
    assert answer["series"] == expected["series"] and answer["window"] == "all"
    (route,) = {one["route"] for one in expected["series"] if one["model"] == "m1"}
    chosen = json.loads(run(binary, "stats", "--admin", admin, "--window", "all", "--json", "--route", route, "--model", "m1").stdout)
    assert [one["model"] for one in chosen["series"]] == ["m1"]
    nothing = run(binary, "stats", "--admin", admin, "--window", "all", "--model", "none")
    assert (nothing.returncode, nothing.stdout) == (0, b"no requests in the window all\n")


def test_a_lapwing_that_does_not_answer_is_named(binary, raw_server):
    dead = run(binary, "stats", "--admin", f"127.0.0.1:{free_port()}")
    assert dead.returncode == 69 and dead.stdout == b"" and re.match(rb"lapwing stats: 127\.0\.0\.1:\d+: cannot connect", dead.stderr)
    other = run(binary, "stats", "--admin", raw_server.url.removeprefix("http://"))
    assert other.returncode == 69 and other.stdout == b"" and other.stderr
    wrong = run(binary, "stats", "--window", "2m")
    assert wrong.returncode == 64 and b"10s, 1m, 5m, all" in wrong.stderr


def test_where_a_token_is_asked_for_it_is_shown(processes, binary, raw_server, tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    lapwing = Asked(processes, binary, raw_server.url, admin_token_file=path)
    admin = ["stats", "--admin", f"127.0.0.1:{lapwing.admin}"]
    without = run(binary, *admin)
    assert without.returncode == 69 and b"401" in without.stderr and b"--token-file" in without.stderr
    assert run(binary, *admin, "--token-file", str(path)).stdout == b"no requests in the window 1m\n"
    assert run(binary, *admin, LAPWING_ADMIN_TOKEN_FILE=str(path)).returncode == 0
    path.write_text(TOKEN[:-1] + "X")
    wrong = run(binary, *admin, "--token-file", str(path))
    assert wrong.returncode == 69 and b"401" in wrong.stderr and TOKEN[:-1].encode() not in wrong.stderr


@pytest.mark.parametrize(
    "typed, offered",
    [
        (["st"], {"stats"}),
        (["stats", "--w"], {"--window"}),
        (["stats", "--window", ""], {"10s", "1m", "5m", "all"}),
        (["completions", ""], {"bash", "zsh", "fish"}),
        (["shadow", "rep"], {"report"}),
        (["serve", "--otlp-f"], {"--otlp-forward"}),
    ],
)
def test_bash_completes(binary, typed, offered):
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("no bash")
    script = """set -e; source <("$1" completions bash); shift
        COMP_WORDS=(lapwing "$@"); COMP_CWORD=$#
        spec=$(complete -p lapwing); [[ $spec == *"-F _lapwing"* ]]
        _lapwing lapwing "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}" """
    asked = subprocess.run([bash, "--norc", "-c", script, "bash", binary, *typed], capture_output=True, text=True, timeout=30)
    assert asked.returncode == 0, asked.stderr
    assert offered <= set(asked.stdout.split()), asked.stdout


@pytest.mark.parametrize("typed, offered", [("st", "stats"), ("stats --w", "--window"), ("shadow rep", "report")])
def test_fish_completes(binary, tmp_path, typed, offered):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    env = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
    script = f'"{binary}" completions fish | source; complete -C "lapwing {typed}"'
    asked = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert asked.returncode == 0, asked.stderr
    assert offered in [line.split("\t")[0] for line in asked.stdout.splitlines()], asked.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_completions(binary, tmp_path, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "completions"
    path.write_bytes(run(binary, "completions", shell).stdout)
    assert subprocess.run([shell, "-n", str(path)], capture_output=True, timeout=30).returncode == 0


def test_the_manual_is_read_without_a_warning(binary, tmp_path):
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    assert run(binary, "man", "--out", str(tmp_path)).returncode == 0
    pages = sorted(tmp_path.iterdir())
    names = [page.name for page in pages]
    assert {"lapwing.1", "lapwing-stats.1", "lapwing-shadow-report.1"} <= set(names)
    for page in pages:
        asked = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-K", "utf8", str(page)], capture_output=True, timeout=60)
        text = re.sub(r"\x1b\[[\d;]*m|.\x08", "", asked.stdout.decode())
        assert asked.returncode == 0 and asked.stderr == b"", (page.name, asked.stderr)
        assert all(section in text for section in ("NAME", "SYNOPSIS", "DESCRIPTION")), page.name
    assert (tmp_path / "lapwing.1").read_bytes() == run(binary, "man").stdout
    stats = subprocess.run(["groff", "-man", "-Tascii", "-P", "-cbou", str(tmp_path / "lapwing-stats.1")], capture_output=True, text=True, timeout=60)
    assert "       lapwing stats --window all --model tickets\n" in stats.stdout, stats.stdout
    assert "--token-file" in stats.stdout


def test_a_closed_pipe_is_no_error(binary):
    for command in (["man"], ["completions", "bash"]):
        asked = subprocess.run(["bash", "-c", '"$@" | head -c 1; exit "${PIPESTATUS[0]}"', "bash", binary, *command], capture_output=True, timeout=30)
        assert asked.returncode == 0 and asked.stderr == b"", command
