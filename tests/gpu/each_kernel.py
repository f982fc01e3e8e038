#!/usr/bin/env python3
"""Runs each check of kernels in a separate process, so that a check that fails or hangs does not affect the others: an illegal address
breaks the context of its process.

Takes at most STEP_SECONDS (step.py). Adds a line to WORK/kernels.jsonl for each check: {name, ok, code, seconds, said}; `ok` is null if no
time was left. Exit code 1 if a check failed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import step

MOST = 15  # seconds for one check, including the driver's compilation of its module


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", metavar="WORK", help="the folder of this run")
    parser.add_argument("check", metavar="CHECK", help="the kernels' check program")
    parser.add_argument("ptx", metavar="PTX", help="the folder of the PTX")
    parser.add_argument("seed", metavar="SEED")
    options = parser.parse_args()
    work, check, ptx, seed = options.work, options.check, options.ptx, options.seed
    step.Ended.listen()
    end = time.monotonic() + float(os.environ.get("STEP_SECONDS", "90")) - step.GRACE
    names = subprocess.run([check, "--list"], capture_output=True, text=True, timeout=20, check=True).stdout.split()
    failed = [] if names else ["--list"]
    for name in names:
        left, begun, said = end - time.monotonic(), time.monotonic(), bytearray()
        if left < 1:
            row = {"name": name, "ok": None, "code": None, "seconds": 0, "said": "no time was left"}
        else:
            command = [check, "--cuda", "libcuda.so.1", "--ptx", ptx, "--seed", seed, "--only", name]
            code = step.run(command, min(MOST, left), said.extend)
            text = said.decode(errors="replace")[-1500:] if code else ""
            row = {"name": name, "ok": code == 0, "code": code, "seconds": round(time.monotonic() - begun, 1), "said": text}
            if code == step.ENDED:
                return 1
        failed += [name] if row["ok"] is False else []
        with open(pathlib.Path(work) / "kernels.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        verdict = {True: "ok", None: "no time left"}.get(row["ok"], f"FAILED with {row['code']}")
        print(f"{verdict:<16} {name}", flush=True)
        for line in row["said"].splitlines() if row["ok"] is False else ():
            print(f"    {line}", flush=True)
    print(f"{len(names)} checks by themselves; failed: {' '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
