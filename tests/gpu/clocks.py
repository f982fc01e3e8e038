"""How fast a device runs, and what holds it back, by nvidia-smi; without one, nothing is told. The standard library alone."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import jsonfile

EVERY = 500  # milliseconds between two looks at the clocks
SPEED = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "temperature.gpu", "power.draw")
# asked for apart from the others: nvidia-smi answers nothing at all where it does not know one field, and newer ones know the first
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
REASON_NAMES = {
    0x1: "idle",
    0x2: "applications' clocks",
    0x4: "power cap by software",
    0x8: "slowdown by hardware",
    0x10: "sync boost",
    0x20: "heat, by software",
    0x40: "heat, by hardware",
    0x80: "power brake",
    0x100: "display's clocks",
}


def query(place, *fields):
    """nvidia-smi's answer about a device, by field; without those that it cannot tell; empty where it does not run."""
    if place is None:
        return {}
    try:
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={place}"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=8, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return answer(fields, said)


def answer(fields, said):
    """One line of nvidia-smi's; of `[N/A]`, `[Not Supported]` and the like nothing stays."""
    lines = said.strip().splitlines()
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return {field: value for field, value in zip(fields, values) if value and value[0] != "["} if len(values) == len(fields) else {}


def reasons_of(text):
    """Names of what holds the clocks back, or None where that is not told."""
    try:
        bits = int(text, 16)
    except (TypeError, ValueError):
        return None
    return [name for bit, name in REASON_NAMES.items() if bits & bit] + [hex(bits & ~0x1FF)] * (bits > 0x1FF)


def held(place):
    """What holds the clocks back, by whichever name the field has here."""
    for field in REASONS:
        if found := query(place, field):
            return reasons_of(found[field])
    return None


def place_of(work):
    return (jsonfile.read(pathlib.Path(work) / "device.json", []) or {}).get("smi_id")


def look(work, when):
    """How fast the device runs at this moment, into WORK/clocks.jsonl."""
    place = place_of(work)
    row = {"when": when, **query(place, *SPEED), "reasons": held(place)}
    with open(pathlib.Path(work) / "clocks.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def sample(work, when):
    """The same twice a second until it is ended, into WORK/samples.jsonl. One nvidia-smi that repeats itself: to start one each time would take the driver's locks more often than to ask."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    place, fields = place_of(work), ["clocks.sm", "power.draw"]
    if place is None:
        return
    fields += [field for field in REASONS if query(place, field)][:1]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={place}", f"--loop-ms={EVERY}"]
    ours, theirs = os.openpty()  # into a pipe it would write by the block
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL)
    except OSError:
        return
    os.close(theirs)
    try:
        with open(ours, encoding="utf-8", errors="replace") as said, open(pathlib.Path(work) / "samples.jsonl", "a", encoding="utf-8") as file:
            for line in said:  # ends with an error where the other side of a terminal is gone
                if row := answer(fields, line):
                    file.write(json.dumps({"when": when, "at": round(time.time(), 2), **row}) + "\n")
                    file.flush()
    except OSError:
        pass
    finally:
        process.kill()


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def watched(rows):
    """Of each time that clocks were looked at repeatedly: least, median and greatest, and how often something held them back."""
    out = []
    for when in dict.fromkeys(row.get("when") for row in rows):
        some = [row for row in rows if row.get("when") == when]
        about = {"when": when, "samples": len(some)}
        for name, field in (("sm_mhz", "clocks.sm"), ("power_w", "power.draw")):
            values = [value for row in some if (value := number(row.get(field))) is not None]
            about[name] = [min(values), statistics.median(values), max(values)] if values else None
        told = [found for row in some if (found := reasons_of(next((row[f] for f in REASONS if f in row), None))) is not None]
        counts = {reason: sum(reason in found for found in told) for reason in sorted({reason for found in told for reason in found})}
        out.append(about | {"reasons": counts if told else None})
    return out
