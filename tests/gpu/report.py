#!/usr/bin/env python3
"""Writes the device figures of docs/BENCHMARKS.md from the files of tests/gpu.sh, and checks that there are no others.

    report.py write [--docs FILE] [--runs FOLDER]     rewrites the section between <!-- device:begin --> and <!-- device:end -->
    report.py check [--docs FILE] [--runs FOLDER]     fails if the section does not match the files, or if there is a figure of a device
                                                      outside of it

FILE is docs/BENCHMARKS.md and FOLDER is benches/device by default. The newest file of each device is used. Without a file, the section is
"Not run on a device." If a run missed a bound, `check` requires a file gpu-COMMIT.md beside gpu-COMMIT.json that says why.
"""

import argparse
import json
import pathlib
import re
import sys

import device_table

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- device:begin -->", "<!-- device:end -->"
NONE = "Not run on a device."
# The name of a device, and a figure. A paragraph or table with both counts as a figure of a device.
DEVICE = re.compile(r"\b(?:[Gg][Pp][Uu]s?|CUDA|NVIDIA|GeForce|RTX|Tesla|[AHBLVT]\d{2,3}0?|GB?\d{3}|L4S?|L40S?|T4)\b")
SETTING = re.compile(r"^`[\w.*\[\]]+`†?(?: ⚑)? \| .*$", re.M)
FIGURE = re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:µs|us|ms|ns|[MGTP]FLOPS?(?:/s)?|[GT]i?B/s|[KMGT]OPS|(?:requests|rows|tokens|sequences)/s)(?![\w])")


# === the section


def runs(folder):
    """The newest run of each device, by the device's name."""
    newest = {}
    for path in sorted(pathlib.Path(folder).glob("gpu-*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        run["file"], text = path.name, path.with_suffix(".md")
        run["explained"] = text.read_text(encoding="utf-8").strip() if text.exists() else None
        if "emulated" in run["device"]["name"]:
            raise SystemExit(f"{path.name} is of {run['device']['name']}, which is not a real device")
        name = run["device"]["name"]
        if name not in newest or newest[name]["date"] < run["date"]:
            newest[name] = run
    return [newest[name] for name in sorted(newest)]


def section(found):
    return "\n\n".join(device_table.of_run(run) for run in found) if found else NONE


def unexplained(found):
    """The files of runs that missed a bound and have no explanation."""
    return [run["file"] for run in found if device_table.misses(run) and not run["explained"]]


def split(text, path):
    """The text before the section, the section, the text behind it."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"{path} must have exactly one {BEGIN}, and exactly one {END} after it")
    head, _, rest = text.partition(BEGIN)
    inner, _, tail = rest.partition(END)
    return head, inner, tail


def strays(text, path):
    """Figures of devices in a text, at most one for each paragraph, table or code block. Rows of settings do not count."""
    out, line = [], 1
    text = SETTING.sub(lambda found: "-" * len(found[0]), text)
    for block in re.split(r"(\n[ \t]*\n)", text):
        device, figure = DEVICE.search(block), FIGURE.search(block)
        if device and figure:
            at = line + block.count("\n", 0, figure.start())
            out.append(f"{path}:{at}: {device[0]} and {figure[0]}: figures of devices are allowed only between {BEGIN} and {END}")
        line += block.count("\n")
    return out


def write(options):
    text = options.docs.read_text(encoding="utf-8")
    head, _, tail = split(text, options.docs)
    options.docs.write_text(f"{head}{BEGIN}\n{section(runs(options.runs))}\n{END}{tail}", encoding="utf-8")
    return []


def check(options):
    text, found = options.docs.read_text(encoding="utf-8"), runs(options.runs)
    head, inner, tail = split(text, options.docs)
    faults = []
    if inner.strip() != section(found):
        faults.append(f"{options.docs.name}: the section of devices is not what {options.runs} gives: python3 tests/gpu/report.py write")
    faults += [f"{name}: a bound was missed: say why in {name.removesuffix('.json')}.md" for name in unexplained(found)]
    # the section is replaced by blank lines, so that the line numbers behind it stay the same
    faults += strays(head + "\n" * inner.count("\n") + tail, options.docs.name)
    others = [*options.docs.parent.glob("*.md"), *(options.docs.parent.parent / n for n in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md"))]
    for path in sorted(p for p in others if p.exists() and p.resolve() != options.docs.resolve()):
        faults += strays(path.read_text(encoding="utf-8"), path.name)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["write", "check"])
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs/BENCHMARKS.md")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "benches/device")
    options = parser.parse_args()
    faults = {"write": write, "check": check}[options.command](options)
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
