#!/usr/bin/env python3
"""Compiles every CUDA kernel with NVRTC, on a machine without a GPU. Needs only python3 and two versions of NVRTC, each in its own venv:

    python3 -m venv .venv-cuda120 && .venv-cuda120/bin/pip install --no-deps -r tests/requirements-cuda120.txt
    python3 -m venv .venv-cuda129 && .venv-cuda129/bin/pip install --no-deps -r tests/requirements-cuda129.txt

    compile.py rules                  checks rules of the sources: no #include, inline PTX only in primitives of prelude.cu (sources.py)
    compile.py ptx [--check]          writes kernels/ptx/FILE.ptx for compute_80 by 12.0.140; --check compares with the committed files
    compile.py cubins [--json FILE]   compiles every kernel for sm_80, 86, 89, 90 by both versions and sm_100 by 12.9.86. A fault is a
                                      spill, a stack frame, static shared memory, a module's variable, an unresolved symbol
    compile.py shipped                assembles the committed PTX for all of these by nvJitLink 12.9.86, as a driver does when it loads
                                      the PTX; registers are allocated differently than by NVRTC. The faults are those of cubins
    compile.py all [--json FILE]      rules, ptx --check, shipped, cubins

Options: --kernels FOLDER, --only NAME (only files whose name begins with NAME; may be repeated), --venv FOLDER (once for each version; a
folder that contains libnvrtc.so.12 will do). Without --venv, the folders that LAPWING_CUDA_VENVS names, separated by a colon, are
used; else .venv-cuda120 and .venv-cuda129 in this folder and those above it. Exit code 1 if there is a fault.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import sys
import time

import cubin
import jitlink
import nvrtc
import sources

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "crates/lapwing-engine/kernels"
PTX_BY, PTX_ARCH = "12.0.140", "compute_80"
CUBINS = {"12.0.140": ("sm_80", "sm_86", "sm_89", "sm_90"), "12.9.86": ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")}
TABLE_BY = "12.9.86"
REGISTERS = 65536  # of a multiprocessor; those of a block must fit
PROCESSES = 2


def libraries(options):
    """{version: libnvrtc} of the versions that were found; the library of built-ins beside it tells its version."""
    found = {}
    for where in given(options):
        path = nvrtc.library(where)
        for version in CUBINS if path else ():
            if (path.parent / f"libnvrtc-builtins.so.{version.rpartition('.')[0]}").exists():
                found.setdefault(version, path)
    return found


def given(options):
    """The folders that may hold libraries."""
    named = options.venv or [v for v in os.environ.get("LAPWING_CUDA_VENVS", "").split(":") if v]
    beside = [folder / name for folder in (HERE, *HERE.parents) for name in (".venv-cuda120", ".venv-cuda129")]
    return named or [folder for folder in beside if folder.exists()]


def library(options, version):
    path = libraries(options).get(version)
    if path is None:
        raise SystemExit(f"compile.py: no NVRTC {version}: make the venvs (see compile.py --help), or name them with --venv")
    return path


# --- a worker process, which loads one version of NVRTC

LOADED = None


def load(where):
    global LOADED
    LOADED = nvrtc.Nvrtc(where)


def compile_one(task):
    name, source, arch, version = task
    try:
        ptx, binary, log = LOADED.compile(name, source, arch, ["--ptxas-options=-v"] if arch.startswith("sm_") else [])
    except nvrtc.CompileError as error:
        return name, arch, None, None, str(error)
    ptx = ptx.decode()
    if f"V{version}" not in ptx[:500]:
        stands = re.search(r"V(\d+\.\d+\.\d+)", ptx[:500])
        return name, arch, None, None, f"NVRTC is {stands[1] if stands else 'of an unknown version'}, not {version}: see requirements-cuda*.txt"
    return name, arch, ptx, binary, log


def load_linker(where):
    global LOADED
    LOADED = jitlink.Linker(where)


def assemble_one(task):
    name, text, arch = task
    return name, arch, text, *LOADED.assemble(name, text, arch)


def compile_all(options, version, arches):
    """Yields the result of compile_one for every kernel file and architecture; the largest files are started first."""
    files = sorted(chosen(options), key=lambda p: -p.stat().st_size)
    tasks = [(p.name, sources.whole_source(options.kernels, p), arch, version) for p in files for arch in arches]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(min(PROCESSES, len(tasks) or 1), load, (str(library(options, version)),)) as pool:
        yield from pool.imap_unordered(compile_one, tasks)


def chosen(options):
    files = sources.kernel_files(options.kernels)
    return [p for p in files if not options.only or p.name.startswith(tuple(options.only))]


# --- commands: each returns its faults


def rules(options):
    faults, primitives = sources.faults(options.kernels)
    print(f"{len(sources.kernel_files(options.kernels))} kernel files; {len(primitives)} primitives: {' '.join(primitives)}")
    return faults


def ptx(options):
    folder, faults, names = options.kernels / "ptx", [], {}
    refresh = f"python3 {os.path.relpath(HERE / 'compile.py')} ptx"
    for name, _, text, _, log in compile_all(options, PTX_BY, [PTX_ARCH]):
        if text is None:
            faults.append(log)
            continue
        for variable in cubin.variables(text):
            faults.append(f"{name}: the module has a variable or an unresolved function: {variable}")
        text = cubin.without_unused(text)
        path = folder / f"{name.removesuffix('.cu')}.ptx"
        names[name] = len(text)
        if not options.check:
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_bytes() != text.encode():
            faults.append(f"{path.name} is not what {name} gives; refresh it: {refresh}")
    wanted = {f"{p.stem}.ptx" for p in sources.kernel_files(options.kernels)}
    for path in sorted(folder.glob("*")):
        if path.name not in wanted:
            faults.append(f"ptx/{path.name} belongs to no kernel file: remove it")
    sizes = ", ".join(f"{name.removesuffix('.cu')} {count / 1024:.0f}" for name, count in sorted(names.items(), key=lambda item: -item[1]))
    print(f"{len(names)} files of PTX {'compared' if options.check else 'written'}, {sum(names.values()) / 1024:.0f} KiB: {sizes}")
    return faults


def cubins(options):
    failed, by_place, rows, warned, owner, made, begun = {}, {}, {}, {}, {}, 0, time.monotonic()
    for version, arches in CUBINS.items():
        for name, arch, text, binary, log in compile_all(options, version, arches):
            if text is None:  # the same error comes with every architecture: reported once
                failed.setdefault(name, log)
                continue
            made += 1
            warned.update(dict.fromkeys(cubin.warnings(log)))
            wrong = [f"unresolved: {extern}" for extern in cubin.externs(binary)]
            wrong += [f"a variable of the module: {variable}" for variable in cubin.variables(text)]
            found, bounds = cubin.ptxas_log(log), cubin.threads(text)
            if not bounds or set(bounds) - set(found):
                wrong.append(f"no kernel, or none in ptxas' log: {sorted(bounds)}")
            for kernel, facts in found.items():
                facts["threads"] = bounds.get(kernel)
                rows.setdefault((name, kernel), {})[version, arch] = facts
                if kernel in bounds and owner.setdefault(kernel, name) != name:
                    wrong.append(f"{kernel} stands in {owner[kernel]} too")
                wrong += [f"{kernel}: {fault}" for fault in kernel_faults(facts, kernel in bounds)]
            for fault in wrong:
                by_place.setdefault(f"{name}: {fault}", []).append(f"{arch}/{version.rpartition('.')[0]}")
    print_table(rows)
    for warning in warned:
        print(f"note: {warning}")
    first_load = {}
    for (name, _), row in rows.items():
        first_load[name] = first_load.get(name, 0) + row.get((TABLE_BY, "sm_90"), {}).get("milliseconds", 0) / 1000
    slowest = ", ".join(f"{name.removesuffix('.cu')} {took:.1f}" for name, took in sorted(first_load.items(), key=lambda item: -item[1])[:4])
    print(f"ptxas for sm_90 took {sum(first_load.values()):.1f} s here, which a driver does at a first load (slowest: {slowest})")
    spills = sum(f["spill_stores"] + f["spill_loads"] > 0 for row in rows.values() for f in row.values())
    kernels = len(owner)
    took = time.monotonic() - begun
    print(f"{kernels} kernels, {made} cubins, {spills} spills ({took:.0f} s)")
    if options.json:
        keep = [dict(file=f, kernel=k, nvrtc=v, arch=a, **facts) for (f, k), row in rows.items() for (v, a), facts in row.items()]
        options.json.write_text(json.dumps({"kernels": kernels, "cubins": made, "seconds": round(took, 1), "rows": keep}, indent=1))
    return [*failed.values()] + [f"{fault} ({' '.join(sorted(places))})" for fault, places in by_place.items()]


def shipped(options):
    where = next(filter(None, map(jitlink.library, given(options))), None)
    if where is None:
        raise SystemExit(f"compile.py: no {jitlink.NAME}: install requirements-cuda129.txt, or name its folder with --venv")
    files = sorted((options.kernels / "ptx").glob("*.ptx"), key=lambda p: -p.stat().st_size)
    files = [p for p in files if not options.only or p.name.startswith(tuple(options.only))]
    tasks = [(p.name, p.read_text(encoding="utf-8"), arch) for p in files for arch in CUBINS[TABLE_BY]]
    by_place, most, made, begun = {}, {}, 0, time.monotonic()
    with multiprocessing.get_context("spawn").Pool(PROCESSES, load_linker, (str(where),)) as pool:
        for name, arch, text, worked, log in pool.imap_unordered(assemble_one, tasks):
            found, bounds = cubin.ptxas_log(log), cubin.threads(text)
            wrong = [] if worked else [f"is not assembled: {log.strip()[:400]}"]
            wrong += [f"{kernel}: not in ptxas' log" for kernel in bounds if worked and kernel not in found]
            for kernel, facts in found.items():
                facts["threads"] = bounds.get(kernel)
                most[kernel] = max(most.get(kernel, 0), facts["registers"])
                wrong += [f"{kernel}: {fault}" for fault in kernel_faults(facts, kernel in bounds)]
            made += worked
            for fault in wrong:
                by_place.setdefault(f"{name}: {fault}", []).append(arch)
    print(f"shipped PTX: {len(most)} kernels, {made} cubins, {time.monotonic() - begun:.0f} s; most registers: {max(most.values(), default=0)}")
    if not tasks:
        return ["no PTX: compile.py ptx"]
    return [f"{fault} ({' '.join(sorted(places))}, as shipped)" for fault, places in by_place.items()]


def kernel_faults(facts, is_kernel):
    """Faults in what ptxas reports about a kernel."""
    if not is_kernel:
        yield "is called and not inlined"
    elif facts["threads"] is None:
        yield "has no launch bounds: declare it by KERNEL(…)"
    elif -(-facts["registers"] // 8) * 8 * facts["threads"] > REGISTERS:
        yield f"{facts['registers']} registers × {facts['threads']} threads are more than {REGISTERS}"
    if facts["spill_stores"] or facts["spill_loads"]:
        yield f"spills: {facts['spill_stores']} bytes stored, {facts['spill_loads']} loaded"
    if facts["stack"]:
        yield f"a stack frame of {facts['stack']} bytes (a local array with an index that is not known?)"
    if facts["shared"]:
        yield f"{facts['shared']} bytes of static shared memory"


def print_table(rows):
    """Registers of each kernel and architecture; spills, stack and shared memory only if they are not 0."""
    arches = CUBINS[TABLE_BY]
    print(f"{'registers by ' + TABLE_BY:<38}threads" + "".join(f"{a:>8}" for a in arches) + "   (spill, stack, shared: where not 0)")
    for (name, kernel), row in sorted(rows.items()):
        cells, more = "", []
        for arch in arches:
            facts = row.get((TABLE_BY, arch))
            cells += f"{facts['registers'] if facts else '-':>8}"
            if facts and any(facts[k] for k in ("spill_stores", "spill_loads", "stack", "shared")):
                more.append(f"{arch}: spill {facts['spill_stores']}/{facts['spill_loads']} stack {facts['stack']} shared {facts['shared']}")
        threads = next(iter(row.values()))["threads"]
        print(f"{name.removesuffix('.cu') + ' ' + kernel:<38}{threads or '-':>7}{cells}   {'; '.join(more)}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["rules", "ptx", "shipped", "cubins", "all"])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--kernels", type=pathlib.Path, default=KERNELS)
    parser.add_argument("--venv", action="append")
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    options.check |= options.command == "all"
    commands = {"rules": [rules], "ptx": [ptx], "shipped": [shipped], "cubins": [cubins], "all": [rules, ptx, shipped, cubins]}[options.command]
    faults = [fault for command in commands for fault in command(options)]
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
