"""Reads NVRTC's output: registers, spills and stack from the log of ptxas, threads and variables from PTX, unresolved symbols from a cubin."""

import re
import struct


def ptxas_log(log):
    """{kernel: {registers, spill_stores, spill_loads, stack, shared, milliseconds}} from `--ptxas-options=-v` (12.0 reports no times)."""
    out, name = {}, None
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            name = m[1]
            out[name] = {"shared": 0}
        elif m := re.search(r"Function properties for (\w+)", line):
            name = m[1]  # a function that is called, not inlined, has its own stack frame
            out.setdefault(name, {"registers": 0, "shared": 0})
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            out[name].update(zip(("stack", "spill_stores", "spill_loads"), map(int, m.groups())))
        elif (m := re.search(r"Compile time = ([\d.]+) ms", line)) and name:
            out[name]["milliseconds"] = float(m[1])
        elif m := re.search(r"Used (\d+) registers", line):
            out[name]["registers"] = int(m[1])
            if m := re.search(r"(\d+) bytes smem", line):
                out[name]["shared"] = int(m[1])
    return out


def warnings(log):
    """The compiler's warnings, one line each."""
    return [line.strip() for line in log.splitlines() if re.search(r"\): warning", line)]


def threads(ptx):
    """{kernel: the most threads of a block, or None without launch bounds}."""
    entries = re.split(r"^\.visible \.entry ", ptx, flags=re.M)[1:]
    out = {}
    for entry in entries:
        name, head = re.match(r"\w+", entry)[0], entry.partition("{")[0]
        bound = re.search(r"\.maxntid (\d+), (\d+), (\d+)", head)
        out[name] = int(bound[1]) * int(bound[2]) * int(bound[3]) if bound else None
    return out


def without_unused(ptx):
    """The PTX without variables that nothing uses: NVRTC puts all constants, and 12.0 also a table of targets, into every module."""
    lines = ptx.split("\n")
    while True:
        declared = {}
        for at, line in enumerate(lines):
            if m := re.match(r"\.(?:global|const)\b[^=;]*?([\w$]+)(?:\[\d*\])*(?: = .*)?;$", line):
                declared[m[1]] = at
        used = set()
        for at, line in enumerate(lines):
            used |= {word for word in re.findall(r"[\w$]+", line) if declared.get(word, at) != at}
        unused = {at for name, at in declared.items() if name not in used}
        if not unused:
            return "\n".join(lines)
        lines = [line for at, line in enumerate(lines) if at not in unused]


def variables(ptx):
    """The declarations of module-wide variables and of external functions in the PTX, without dynamic shared memory."""
    return re.findall(r"^\.(?:visible )?(?:global|const|shared)\b.*$|^(?:\.visible )?\.extern \.(?!shared)\w+.*$", without_unused(ptx), flags=re.M)


def externs(cubin):
    """The names of undefined symbols in the cubin's symbol table."""
    header = struct.unpack_from("<16sHHIQQQIHHHHHH", cubin)
    offset, size, count = header[6], header[11], header[12]
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + at * size) for at in range(count)]
    out = []
    for kind, start, length, link in [(s[1], s[4], s[5], s[6]) for s in sections]:
        if kind == 2:  # SHT_SYMTAB
            names = sections[link][4]
            for at in range(start + 24, start + length, 24):
                at_name, _, _, section = struct.unpack_from("<IBBH", cubin, at)
                name = cubin[names + at_name : cubin.index(b"\0", names + at_name)].decode()
                if section == 0 and name and not name.startswith(".nv."):  # .nv.*: reserved by the driver
                    out.append(name)
    return out
