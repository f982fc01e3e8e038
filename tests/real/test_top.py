"""`lapwing top` in a terminal of its own (a pty, its screen read by pyte), before a Lapwing under load: figures, keys, faults."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pyte
import pytest

from ports import free_port
from process import wait_for
from test_admin_reads import Asked
from test_terminal import SHOWN, in_ns, infer_hostile

pytestmark = pytest.mark.beside

COLUMNS, LINES = 160, 30
LEAVES_ALTERNATE = b"\x1b[?1049l"
SHOWS_CURSOR = b"\x1b[?25h"


class Terminal:
    """A command in a pty, and the screen that its output draws."""

    def __init__(self, command):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self.master, slave = pty.openpty()
        self.resize(COLUMNS, LINES)
        self.before = termios.tcgetattr(slave)
        self.child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={**os.environ, "TERM": "xterm-256color"})
        self.slave = slave

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            data = os.read(self.master, 1 << 16)
            self.raw += data
            # pyte knows no DECRQM and the like; it skips what it does not know
            self.stream.feed(data)

    def lines(self):
        self.read()
        # not `display`, which fails where half of a wide character was drawn over
        return ["".join(self.screen.buffer[y][x].data for x in range(self.screen.columns)).rstrip() for y in range(self.screen.lines)]

    def until(self, text, seconds=20):
        return wait_for(lambda: any(text in line for line in self.lines()) and self.lines(), seconds, f"{text!r} is shown: {self.lines()}")

    def gone(self, text, seconds=20):
        wait_for(lambda: not any(text in line for line in self.lines()), seconds, f"{text!r} is gone: {self.lines()}")

    def press(self, keys):
        os.write(self.master, keys)

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def ended(self):
        """The exit code, and whether the terminal is as it was."""
        wait_for(lambda: self.read() or self.child.poll() is not None, 10, "it ends")
        self.read()
        restored = termios.tcgetattr(self.slave) == self.before and LEAVES_ALTERNATE in self.raw and SHOWS_CURSOR in self.raw
        return self.child.returncode, restored

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait(10)
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    opened = []

    def start(*command):
        opened.append(Terminal(command))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def lapwing(processes, binary, raw_server):
    """A Lapwing under load, until the tests end. The slowest requests are of `m1`, however quiet the machine is."""
    lapwing = Asked(processes, binary, raw_server.url)
    infer_hostile(lapwing)
    stop = threading.Event()

    def load():
        while not stop.wait(0.02):
            for model, ms in (("m0", 0), ("m0", 0), ("m1", 5)):
                lapwing.infer(model, ms=ms)

    thread = threading.Thread(target=load)
    thread.start()
    yield lapwing
    stop.set()
    thread.join()


def top(binary, lapwing, *more):
    return [binary, "top", "--admin", f"127.0.0.1:{lapwing.admin}", *more]


def row(lines, name):
    (line,) = [line for line in lines if name in line and "req/s" not in line]
    return line


def test_the_figures_are_those_of_stats(binary, terminal, lapwing):
    shown = terminal(*top(binary, lapwing, "--window", "all"))
    lines = shown.until("model m1")
    assert shown.is_raw()
    assert lines[0].startswith(f"lapwing top  127.0.0.1:{lapwing.admin}  window all, up ")
    # escaped, and the screen is neither cleared nor renamed by it
    assert any(f"model {SHOWN[:20]}" in line for line in lines), lines
    assert shown.screen.title == ""

    def agree():
        """Figures move while they are read: what is shown lies between two answers, by the precision that is shown."""
        before = lapwing.json("/stats?window=all")
        time.sleep(1.5)
        lines = shown.lines()
        after = lapwing.json("/stats?window=all")
        for model in ("m0", "m1"):
            one, two = [next(s for s in stats["series"] if s["model"] == model) for stats in (before, after)]
            rate, errors, p50, p99 = re.search(rf"model {model} +(\S+) +(\d+) +([\d.]+ \S+) +([\d.]+ \S+)", row(lines, f"model {model}")).groups()
            rates = sorted(s["count"] / stats["covered_ns"] * 1e9 for s, stats in ((one, before), (two, after)))
            assert errors == "0" == str(two["errors"])
            if not rates[0] - 0.06 <= float(rate) <= rates[1] + 0.06:
                return False
            for text, key in ((p50, "p50_ns"), (p99, "p99_ns")):
                low, high = sorted((one["total"][key], two["total"][key]))
                if not low * 0.994 <= in_ns(text) <= high * 1.006:
                    return False
        return True

    wait_for(agree, 30, "figures are those of /stats", 0)
    bar = re.search(r"([IVHPQFODEU?]{10,24})", row(shown.lines(), "model m0")).group(1)
    stages = next(s for s in lapwing.json("/stats?window=all")["series"] if s["model"] == "m0")["stages"]
    letters = {name[0].upper() for name, figures in stages.items() if figures["share"] > 0.1 and name not in ("unattributed", "postprocessing")}
    assert letters <= set(bar), (bar, stages)
    shown.press(b"q")
    assert shown.ended() == (0, True)


def test_keys_sort_filter_and_open_the_slowest(binary, terminal, lapwing):
    shown = terminal(*top(binary, lapwing))
    shown.until("model m1")
    shown.press(b"s")
    shown.until("sorted by rate")
    shown.press(b"r")
    shown.until("sorted by rate reversed")
    shown.press(b"?")
    shown.until("the slowest requests of the row")
    shown.press(b"x")
    shown.gone("the slowest requests of the row")
    shown.press(b"/")
    shown.until("filter: ")
    shown.press(b"M1")
    shown.gone("model m0")
    shown.press(b"\r")
    shown.until("filter: M1")
    shown.press(b"\r")
    shown.until("1 of 10")
    # its last line, without which what is above may be half drawn
    wait_for(lambda: any(re.search(r"egress +[\d.]+ ", line) for line in shown.lines()), 10, "the stages are drawn")
    lines = shown.lines()
    assert any("slowest: " in line and "model m1" in line for line in lines)
    (trace,) = [line.split("trace ")[1].split()[0].strip("│ ") for line in lines if "trace " in line]
    slowest = lapwing.json("/exchanges?order=slowest&limit=50&model=m1")["exchanges"]
    (one,) = [one for one in slowest if one["trace_id"] == trace]
    (total,) = re.findall(r"1 of 10  ([\d.]+ \S+)  ok, status 200", "\n".join(lines))
    assert in_ns(total) == pytest.approx(one["total_ns"], rel=0.006)
    for stage in one["stages"]:
        assert any(re.search(rf"{stage['stage']} +[\d.]+ ", line) for line in lines), stage
    shown.press(b"\x1b[C")
    shown.until("2 of 10")
    shown.press(b"\x1b")
    shown.gone("2 of 10")
    shown.press(b"\x1b")
    shown.until("model m0")
    shown.resize(60, 12)
    os.kill(shown.child.pid, signal.SIGWINCH)
    wait_for(lambda: any("model m0" in line and len(line) <= 60 for line in shown.lines()), 10, "it fits the smaller screen")
    shown.press(b"\x03")
    assert shown.ended() == (0, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_restores_the_terminal(binary, terminal, lapwing, number):
    shown = terminal(*top(binary, lapwing))
    shown.until("model m0")
    assert shown.is_raw()
    shown.child.send_signal(number)
    assert shown.ended() == (128 + number, True)


def test_a_lapwing_that_dies_and_returns(binary, terminal, processes, raw_server):
    lapwing = Asked(processes, binary, raw_server.url)
    lapwing.infer("alive")
    shown = terminal(*top(binary, lapwing, "--window", "all"))
    shown.until("model alive")
    lapwing.process.stop(signal.SIGKILL)
    lines = shown.until("NO FIGURES; figures are old; trying again: ")
    assert any(f"127.0.0.1:{lapwing.admin}" in line for line in lines[1:2])
    command = [binary, "--upstream", raw_server.url, "--listen", f"127.0.0.1:{lapwing.port}", "--admin", f"127.0.0.1:{lapwing.admin}", "--otlp-grpc", "off", "--otlp-http", "off"]
    processes("lapwing", command)
    shown.gone("NO FIGURES")
    shown.until("no requests in the window")
    lapwing.infer("again")
    shown.until("model again")
    shown.press(b"q")
    assert shown.ended() == (0, True)


def test_without_a_terminal_there_are_lines(binary, processes, lapwing):
    lines = processes("top", top(binary, lapwing))
    wait_for(lambda: len(re.findall("model m0: ", lines.output())) >= 2, 30, "two looks are printed")
    assert re.search(r"^\d{4}-\d\d-\d\dT[\d:]+Z POST \S+, model m0: [\d.]+ requests/s, no errors, p50 [\d.]+ \S+, p99 [\d.]+ \S+: ", lines.output(), re.M), lines.output()
    assert "\x1b" not in lines.output()
    lines.send(signal.SIGTERM)
    assert lines.wait(10) == 128 + signal.SIGTERM
    dead = free_port()
    lost = processes("top", [binary, "top", "--admin", f"127.0.0.1:{dead}"])
    wait_for(lambda: f"127.0.0.1:{dead}: cannot connect" in lost.output(), 20, "the reason is told")
    assert lost.is_running()
    lost.stop()


def test_in_tmux(binary, lapwing, tmp_path):
    """A terminal that people use: the view is drawn, and a wrong key does no harm."""
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    try:
        subprocess.run([*tmux, "new-session", "-d", "-x", "140", "-y", "30", *top(binary, lapwing)], check=True, timeout=20)
    except FileNotFoundError:
        pytest.skip("tmux is not installed")

    def pane():
        return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, timeout=20).stdout

    try:
        wait_for(lambda: "model m0" in pane(), 20, f"it is drawn: {pane()}")
        assert "I ingress" in pane() and "sorted by time" in pane()
        subprocess.run([*tmux, "send-keys", "Z", "F5", "s"], check=True, timeout=20)
        wait_for(lambda: "sorted by rate" in pane(), 20, "a key is taken")
        subprocess.run([*tmux, "send-keys", "q"], check=True, timeout=20)
        wait_for(lambda: not subprocess.run([*tmux, "has-session"], capture_output=True, timeout=20).returncode == 0, 20, "it ends")
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True, timeout=20)
