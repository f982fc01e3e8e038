#!/usr/bin/env python3
"""Runs one step of tests/gpu.sh within its time limit: shows its output, ends it with all processes that it started, and records how it
ended.

The command gets its time limit in STEP_SECONDS. Adds a line to WORK/steps.jsonl: {name, ok, code, seconds, last_line}, and for a failed
step also `end`, the end of its output. The exit code is 0 if the step succeeded, 3 if the command's was 3 (not run here: `ok` is null),
else 1. Code 124 means that the step took too long, 143 that a signal ended it. Uses only the standard library, because it must work
even where nothing else does.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

KEPT = 4096  # bytes kept of the end of a failed step's output
GRACE = 5  # seconds from SIGTERM to SIGKILL, and from SIGKILL to giving up: a process may hang in the driver for good
TOO_LITTLE = 3  # a step is not started with less than this many seconds
TOO_LONG, ENDED = 124, 143


class Ended:
    """Whether a signal has told this program to end. After `listen`, signals only set `told`, however often they come."""

    told = False

    @classmethod
    def listen(cls):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, cls.tell)

    @classmethod
    def tell(cls, *_):
        cls.told = True


def run(command, seconds, show, env=None):
    """Runs a command and returns its exit code. `show` gets its output as it comes. Its process group ends with it."""
    if Ended.told:
        return ENDED
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, env=env
        )
    except OSError as error:
        show(f"{error}\n".encode())
        return 127
    end, why, sent = time.monotonic() + seconds, None, []
    pipe = process.stdout.fileno()
    try:
        while True:
            if select.select([pipe], [], [], 0.1)[0]:
                chunk = os.read(pipe, 1 << 16)
                if not chunk:
                    break
                show(chunk)
            elif process.poll() is not None:
                break  # a process that it left behind holds the pipe
            if Ended.told and not why:
                end, why = time.monotonic(), ENDED
            if len(sent) < 3 and time.monotonic() >= end + GRACE * len(sent):
                why = why or TOO_LONG
                sent.append(True)
                if len(sent) == 3:
                    break
                kill(process, (signal.SIGTERM, signal.SIGKILL)[len(sent) - 1])
        # it may have closed its output and still run
        last = time.monotonic() + GRACE if sent else end
        while process.poll() is None and time.monotonic() < last and (sent or not Ended.told):
            time.sleep(0.02)
        if process.poll() is None:
            why = why or (ENDED if Ended.told else TOO_LONG)
    finally:
        kill(process, signal.SIGKILL)
    code = process.poll()
    return why or (128 - code if code < 0 else code)


def kill(process, number):
    with contextlib.suppress(OSError):
        os.killpg(process.pid, number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", metavar="WORK", type=pathlib.Path, help="the folder of this run")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("seconds", metavar="SECONDS", type=int)
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the command and its arguments")
    options = parser.parse_args()
    work, name, seconds, command = options.work, options.name, options.seconds, options.command
    said, begun = bytearray(), time.monotonic()
    Ended.listen()

    def show(chunk):
        said.extend(chunk)
        del said[:-KEPT]
        with contextlib.suppress(OSError):  # the reader of the output is gone
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()

    if seconds < TOO_LITTLE:
        show(b"no time is left for it\n")
        code = TOO_LONG
    else:
        code = run(command, seconds, show, os.environ | {"STEP_SECONDS": str(seconds)})
    if code == TOO_LONG and seconds >= TOO_LITTLE:
        show(f"\nended after {seconds} s, its time limit\n".encode())
    text = said.decode(errors="replace")
    ok = {0: True, 3: None}.get(code, False)
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    record = {"name": name, "ok": ok, "code": code, "seconds": round(time.monotonic() - begun), "last_line": last[:300]}
    if ok is False:
        record["end"] = text
    with open(work / "steps.jsonl", "a", encoding="utf-8") as steps:
        steps.write(json.dumps(record) + "\n")
    return {True: 0, None: 3}.get(ok, 1)


if __name__ == "__main__":
    sys.exit(main())
