#!/usr/bin/env python3
"""Queries the machine for tests/gpu.sh, and makes one file from the results of its steps. Uses only the standard library."""

import argparse
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
import sys

import clocks
import jsonfile

EMULATED = "lapwing-emulated"
SAMPLES_KEPT = 2000


# === before anything runs


def built(binary, check, ptx):
    """SHA-256 of both programs. Fails unless the binary contains each PTX file unchanged, except the primitives, which only the check uses."""
    lacking = []
    with open(binary, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        for path in sorted(pathlib.Path(ptx).glob("*.ptx")):
            if path.name != "primitives.ptx" and held.find(path.read_bytes()) < 0:
                lacking.append(path.name)
    if lacking:
        why = f"{binary} was not built from {ptx}: it lacks {', '.join(lacking)} in this version"
        raise SystemExit(f"tests/gpu.sh: {why}. Rebuild it with the feature cuda")
    return {"lapwing_sha256": digest(binary), "check_sha256": digest(check)}


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def device(kind):
    """The facts of the first device, from the driver."""
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

    # by its address on the bus, because nvidia-smi numbers devices differently than the driver; "0" for machines where the addresses differ
    places = [at for at in (place.value.decode(), "0") if clocks.query(at, "driver_version")] or [None]
    facts = {"name": name, "smi_id": places[0], "driver": clocks.query(places[0], "driver_version").get("driver_version")}
    facts |= {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}", "capability": f"{attribute(75)}.{attribute(76)}"}
    return facts | {"multiprocessors": attribute(16), "l2_bytes": attribute(38), "memory_bytes": memory.value}


# === cublasLt


def folders():
    """The folders where wheels and toolkits put libraries, which are not on the loader's path."""
    for place in [*map(pathlib.Path, sys.path), pathlib.Path(sys.prefix) / "lib"]:
        yield from sorted(place.glob("nvidia/*/lib"))
        yield place / "torch/lib"
    yield pathlib.Path(sys.prefix) / "lib"
    for toolkit in [pathlib.Path("/usr/local/cuda"), *sorted(pathlib.Path("/usr/local").glob("cuda-*"), reverse=True)]:
        yield toolkit / "lib64"


def libraries(path):
    """Adds {path, version, by} of the cublasLt that Lapwing will find to the file, and prints the folders to add to the loader's path."""
    facts = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    found, added = None, []
    for name in ("libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"):  # the names that Lapwing tries
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            found = {"path": mapped("libcublasLt.so") or name, "version": version_of(library), "by": "the loader"}
            break
    if not found:
        known = int(facts["cuda"].partition(".")[0])  # a library for a newer driver does not run
        for folder, major in ((folder, major) for folder in folders() for major in (13, 12) if major <= known):
            file = folder / f"libcublasLt.so.{major}"
            if not file.exists():
                continue
            # newer versions compile kernels at run time, by the NVRTC beside them
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
    """The path of a loaded library, or None."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
            if name in line.rpartition("/")[2]:
                return line[line.index("/") :]
    return None


# === the file


def collect(work, commit, path, seconds, note=""):
    work, notes = pathlib.Path(work), [note] if note else []
    rows = [row for file in sorted((work / "rows").glob("*.jsonl")) for row in jsonfile.lines(file, notes)]
    torch = jsonfile.read(work / "torch.json", notes) or []
    # keeps evenly spaced samples, so that the file stays small, and their number before that as `calls`
    for row in [*rows, *torch]:
        samples = row.get("samples_us") or []
        row["calls"] = len(samples)
        if len(samples) > SAMPLES_KEPT:
            row["samples_us"] = [samples[at * len(samples) // SAMPLES_KEPT] for at in range(SAMPLES_KEPT)]
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    run = {"format": 1, "commit": commit, "date": now, "seconds": int(seconds), "device": jsonfile.read(work / "device.json", notes)}
    run |= {"host": {"kernel": platform.release(), "machine": platform.machine(), "processor": processor()}}
    run |= {"clocks": jsonfile.lines(work / "clocks.jsonl", notes), "watched": clocks.watched(jsonfile.lines(work / "samples.jsonl", notes))}
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


COMMANDS = {
    "device": "checks that the binary contains this PTX and that there is a device, and writes facts about both to FILE. With KIND "
    "`rehearsal` only the emulated device is accepted, else only a real one",
    "libraries": "looks for cublasLt, adds its facts to FILE and prints the folders to add to the loader's path",
    "clocks": "adds the device's clocks at this moment to WORK/clocks.jsonl",
    "sample": "adds clocks and power to WORK/samples.jsonl twice a second, until it is terminated",
    "collect": "writes FILE from the results in WORK",
}
WORDS = {
    "device": ("KIND", "BINARY", "CHECK", "PTX", "FILE"),
    "libraries": ("FILE",),
    "clocks": ("WORK", "WHEN"),
    "sample": ("WORK", "WHEN"),
    "collect": ("WORK", "COMMIT", "FILE", "SECONDS", "NOTE"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        for word in WORDS[name]:
            command.add_argument(word)
    options = parser.parse_args()
    words = [getattr(options, word) for word in WORDS[options.command]]
    if options.command == "device":
        kind, binary, check, ptx, path = words
        facts = built(binary, check, ptx)
        jsonfile.keep(path, device(kind) | facts)
        return 0
    does = {"libraries": libraries, "clocks": clocks.look, "sample": clocks.sample, "collect": collect}
    does[options.command](*words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
