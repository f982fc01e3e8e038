#!/usr/bin/env python3
"""What tests/gpu.sh asks of a machine, and the file that it makes of all that its steps left. The standard library alone.

    record.py device KIND BINARY CHECK PTX FILE      fails unless the binary has this PTX and there is a device: what both are, into FILE.
                                                     KIND `rehearsal`: on the emulated device alone; else never on that
    record.py libraries FILE                         looks for cublasLt, adds to FILE what it found, prints the folders that the loader lacks
    record.py clocks WORK WHEN                       how fast the device runs at this moment, into WORK/clocks.jsonl
    record.py sample WORK WHEN                       the same twice a second until it is ended, into WORK/samples.jsonl
    record.py collect WORK COMMIT FILE SECONDS NOTE  FILE of whatever lies in WORK
"""

import contextlib
import ctypes
import datetime
import hashlib
import json
import mmap
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import time

import jsonfile

EMULATED = "lapwing-emulated"
SAMPLES_KEPT = 5000
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


# === before anything runs


def built(binary, check, ptx):
    """SHA-256 of both programs; fails unless each module of PTX stands in the binary as it is. The primitives are the check's alone."""
    lacking = []
    with open(binary, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        for path in sorted(pathlib.Path(ptx).glob("*.ptx")):
            if path.name != "primitives.ptx" and held.find(path.read_bytes()) < 0:
                lacking.append(path.name)
    if lacking:
        why = f"{binary} was not built from {ptx}: it lacks {', '.join(lacking)} as they are there"
        raise SystemExit(f"tests/gpu.sh: {why}. Build it anew, with the feature cuda")
    return {"lapwing_sha256": digest(binary), "check_sha256": digest(check)}


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def device(kind):
    """The first device, asked through the driver itself."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise SystemExit(f"tests/gpu.sh: no NVIDIA driver: {error}") from None
    if code := cuda.cuInit(0):
        raise SystemExit(f"tests/gpu.sh: the driver finds no device (cuInit: {code})")
    name, place = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
    version, handle, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    if code := cuda.cuDeviceGet(ctypes.byref(handle), 0):
        raise SystemExit(f"tests/gpu.sh: the driver finds no device (cuDeviceGet: {code})")
    cuda.cuDeviceGetName(name, 256, handle)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    cuda.cuDeviceGetPCIBusId(place, 64, handle)
    name = name.value.decode()
    if (name == EMULATED) != (kind == "rehearsal"):
        why = "is the fake libcuda of the tests: no figure comes from it" if name == EMULATED else "is no emulated device: rehearse elsewhere"
        raise SystemExit(f"tests/gpu.sh: {name} {why}")

    def attribute(number):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value

    # by its place on the bus, for nvidia-smi counts otherwise than the driver; but not every machine shows the same places to both
    places = [at for at in (place.value.decode(), "0") if query(at, "driver_version")] or [None]
    facts = {"name": name, "smi_id": places[0], "driver": query(places[0], "driver_version").get("driver_version")}
    facts |= {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}", "capability": f"{attribute(75)}.{attribute(76)}"}
    return facts | {"multiprocessors": attribute(16), "l2_bytes": attribute(38), "memory_bytes": memory.value}


# === cublasLt


def folders():
    """Where wheels and toolkits put libraries: off the loader's path."""
    for place in [*map(pathlib.Path, sys.path), pathlib.Path(sys.prefix) / "lib"]:
        yield from sorted(place.glob("nvidia/*/lib"))
        yield place / "torch/lib"
    yield pathlib.Path(sys.prefix) / "lib"
    for toolkit in [pathlib.Path("/usr/local/cuda"), *sorted(pathlib.Path("/usr/local").glob("cuda-*"), reverse=True)]:
        yield toolkit / "lib64"


def libraries(path):
    """{path, version, by} of the cublasLt that Lapwing will find, and the folders that must be put on the loader's path for it."""
    facts = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    found, added = None, []
    for name in ("libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"):  # as Lapwing does
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            found = {"path": mapped("libcublasLt.so") or name, "version": version_of(library), "by": "the loader"}
            break
    if not found:
        known = int(facts["cuda"].partition(".")[0])  # a library for a newer driver than this does not run
        for folder, major in ((folder, major) for folder in folders() for major in (13, 12) if major <= known):
            file = folder / f"libcublasLt.so.{major}"
            if not file.exists():
                continue
            # newer ones have kernels compiled as they go, by the NVRTC beside them
            beside = [compiler.parent for compiler in sorted(folder.parent.parent.glob(f"*/lib/libnvrtc.so.{major}"))]
            for compiler in (folder, *beside):
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(compiler / f"libnvrtc.so.{major}"))
            with contextlib.suppress(OSError):
                found = {"path": str(file), "version": version_of(ctypes.CDLL(str(file))), "by": "its folder"}
                added = list(dict.fromkeys([folder, *beside]))
                break
    jsonfile.keep(path, facts | {"cublaslt": found})
    told = f"cublasLt {found['version']} at {found['path']}, found by {found['by']}" if found else "no cublasLt: own products alone"
    print(told, file=sys.stderr)
    print(":".join(map(str, added)))


def version_of(library):
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    number = library.cublasLtGetVersion()
    return f"{number // 10000}.{number % 10000 // 100}"


def mapped(name):
    """Where a library that is loaded lies."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
            if name in line.rpartition("/")[2]:
                return line[line.index("/") :]
    return None


# === clocks


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


def clocks(work, when):
    place = place_of(work)
    row = {"when": when, **query(place, *SPEED), "reasons": held(place)}
    with open(pathlib.Path(work) / "clocks.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def sample(work, when):
    """One nvidia-smi that repeats itself: to start one each time would take the driver's locks more often than to ask."""
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


# === the file


def collect(work, commit, path, seconds, note=""):
    work, notes = pathlib.Path(work), [note] if note else []
    rows = [row for file in sorted((work / "rows").glob("*.jsonl")) for row in jsonfile.lines(file, notes)]
    torch = jsonfile.read(work / "torch.json", notes) or []
    for row in [*rows, *torch]:  # evenly chosen, so that a file stays small; of how many they are is kept
        samples = row.get("samples_us") or []
        row["calls"] = len(samples)
        if len(samples) > SAMPLES_KEPT:
            row["samples_us"] = [samples[at * len(samples) // SAMPLES_KEPT] for at in range(SAMPLES_KEPT)]
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    run = {"format": 1, "commit": commit, "date": now, "seconds": int(seconds), "device": jsonfile.read(work / "device.json", notes)}
    run |= {"host": {"kernel": platform.release(), "machine": platform.machine(), "processor": processor()}}
    run |= {"clocks": jsonfile.lines(work / "clocks.jsonl", notes), "watched": watched(jsonfile.lines(work / "samples.jsonl", notes))}
    run |= {"steps": jsonfile.lines(work / "steps.jsonl", notes), "kernels": jsonfile.lines(work / "kernels.jsonl", notes)}
    run |= {"plans": jsonfile.read(work / "plans.json", notes), "rows": [row for row in rows if row["calls"]]}
    run |= {"others": [row for row in rows if not row["calls"]], "torch": torch, "notes": notes}  # others: peaks, cold starts
    jsonfile.keep(path, run)
    print(f"\n{path}: {len(rows)} rows, {len(torch)} of PyTorch, {seconds} s")
    for step in run["steps"]:
        print(f"  {({True: 'ok', None: 'not run here'}).get(step['ok'], 'FAILED'):<13}{step['seconds']:>4} s  {step['name']}")
    for kernel in run["kernels"]:
        if kernel["ok"] is not True:
            print(f"  {'FAILED' if kernel['ok'] is False else 'no time left':<13}       {kernel['name']}")
    for text in notes:
        print(f"  note: {text}")


def processor():
    try:
        found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        return None
    return found[1] if found else None


def main():
    command, *words = sys.argv[1:] or [""]
    if command == "device":
        kind, binary, check, ptx, path = words
        facts = built(binary, check, ptx)
        jsonfile.keep(path, device(kind) | facts)
        return 0
    commands = {"libraries": libraries, "clocks": clocks, "sample": sample, "collect": collect}
    if command not in commands:
        raise SystemExit(__doc__)
    commands[command](*words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
