"""The clocks of a device, and why they are reduced, from nvidia-smi; empty without nvidia-smi. Uses only the standard library."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import jsonfile

EVERY = 500  # milliseconds between two samples of the clocks
SPEED = ("clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "temperature.gpu", "power.draw")
# Two names of one field; newer versions of nvidia-smi know the first. Queried separately, because nvidia-smi answers nothing at all if it
# does not know one of the fields.
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
    """nvidia-smi's answers about a device, by field, without the fields that it does not support; empty if it does not run."""
    if place is None:
        return {}
    try:
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={place}"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=8, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return answer(fields, said)


def answer(fields, said):
    """The values of one line of nvidia-smi, by field, without `[N/A]`, `[Not Supported]` and the like."""
    lines = said.strip().splitlines()
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    return {field: value for field, value in zip(fields, values) if value and value[0] != "["} if len(values) == len(fields) else {}


def reasons_of(text):
    """The names of the reasons why the clocks are reduced, or None if `text` is not a number."""
    try:
        bits = int(text, 16)
    except (TypeError, ValueError):
        return None
    return [name for bit, name in REASON_NAMES.items() if bits & bit] + [hex(bits & ~0x1FF)] * (bits > 0x1FF)


def held(place):
    """The reasons why the clocks are reduced, queried by either name of the field."""
    for field in REASONS:
        if found := query(place, field):
            return reasons_of(found[field])
    return None


def place_of(work):
    return (jsonfile.read(pathlib.Path(work) / "device.json", []) or {}).get("smi_id")


def look(work, when):
    """Writes the device's clocks at this moment to WORK/clocks.jsonl."""
    place = place_of(work)
    row = {"when": when, **query(place, *SPEED), "reasons": held(place)}
    with open(pathlib.Path(work) / "clocks.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def sample(work, when):
    """Writes clocks and power to WORK/samples.jsonl twice a second until it is terminated.

    One nvidia-smi repeats the query, because starting it for each sample would take the driver's locks more often.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    place, fields = place_of(work), ["clocks.sm", "power.draw"]
    if place is None:
        return
    fields += [field for field in REASONS if query(place, field)][:1]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={place}", f"--loop-ms={EVERY}"]
    ours, theirs = os.openpty()  # nvidia-smi buffers its output to a pipe, but not to a terminal
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL)
    except OSError:
        return
    os.close(theirs)
    try:
        with open(ours, encoding="utf-8", errors="replace") as said, open(pathlib.Path(work) / "samples.jsonl", "a", encoding="utf-8") as file:
            for line in said:  # raises OSError once nvidia-smi has closed the terminal
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
    """For each `when` in the samples: least, median and greatest clocks and power, and how often each reason reduced the clocks."""
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
