"""The kernel sources: assembles the source of a kernel file, and checks the rules that can be checked on the text.

A primitive is a function of prelude.cu with inline PTX or a warp builtin; each overload counts as one.
"""

import pathlib
import re

SHARED_FILES = ("prelude.cu", "args.cu")
MOST_PRIMITIVES = 20
ASM = re.compile(r"\b(?:asm|__asm|__asm__)\b")
WARP = re.compile(r"\b__(?:shfl|ballot|any_sync|all_sync|uni_sync|reduce_|match_|activemask|nv_)\w*")
ATOMIC_FLOAT = re.compile(r"\batomicAdd\s*\(\s*\(\s*float")


def kernel_files(folder):
    """Every kernel file, in the order of their names."""
    return sorted(p for p in pathlib.Path(folder).glob("*.cu") if p.name not in SHARED_FILES)


def whole_source(folder, path):
    """prelude.cu, args.cu and the file, with #line directives so that errors name the right file."""
    parts = [pathlib.Path(folder) / name for name in SHARED_FILES] + [path]
    return "".join(f'#line 1 "{p.name}"\n{p.read_text(encoding="utf-8").rstrip()}\n' for p in parts)


def code_of(text):
    """The text without comments and without the contents of strings; line numbers stay the same."""

    def blank(found):
        piece = found[0]
        if piece.startswith('"'):
            return '""'
        return piece if piece.startswith("'") else "\n" * piece.count("\n") or " "

    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", blank, text, flags=re.S)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def functions(code):
    """(first line, last line, text) of each function: an outermost {…} with a parameter list before it. The text includes the head."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), code, flags=re.M)
    depth, found, head = 0, [], 0
    for at, c in enumerate(code):
        if c == "{":
            if depth == 0 and re.search(r'\bnamespace\b[^;(]*$|extern\s*""\s*$', code[head:at]):
                head = at + 1
                continue
            if depth == 0:
                is_function = "(" in code[head:at] and not re.match(r"\s*(?:struct|enum|union|class)\b", code[head:at])
            depth += 1
        elif c == "}" and depth:
            depth -= 1
            if depth == 0 and is_function:
                head += len(code[head:]) - len(code[head:].lstrip())
                found.append((line_of(code, head), line_of(code, at), code[head : at + 1]))
            head = head if depth else at + 1
        elif c in ";}" and depth == 0:
            head = at + 1
    return found


def primitives(text):
    """(names, faults) of prelude.cu: its functions with inline PTX or warp builtins, and such code outside of functions (in a macro)."""
    code, names, covered = code_of(text), [], set()
    for first, last, body in functions(code):
        covered |= set(range(first, last + 1))
        if ASM.search(body) or WARP.search(body):
            names.append(re.search(r"(\w+)\s*\(", re.sub(r"__\w+__\s*\([^)]*\)+", "", body.partition("{")[0]))[1])
    lines = [(line_of(code, m.start()), m[0]) for rule in (ASM, WARP) for m in rule.finditer(code)]
    faults = [f"prelude.cu:{line}: {word} stands in no function (a macro?)" for line, word in lines if line not in covered]
    if len(names) > MOST_PRIMITIVES:
        faults.append(f"prelude.cu: {len(names)} primitives, more than {MOST_PRIMITIVES}: {' '.join(names)}")
    return names, faults


def faults(folder):
    """(faults, names): violations of the rules, and the names of the primitives."""
    folder, out = pathlib.Path(folder), []
    for path in sorted(folder.glob("*.cu")):
        code = code_of(path.read_text(encoding="utf-8"))
        rules = [(re.compile(r"^[ \t]*#[ \t]*include\b", re.M), "kernels have no headers")]
        rules += [(re.compile(r"\b__constant__\b|\bprintf\b"), "no __constant__, no printf"), (ATOMIC_FLOAT, "no atomics on floats")]
        if path.name != "prelude.cu":
            rules += [(ASM, "inline PTX stands in prelude.cu only"), (WARP, "warp builtins stand in prelude.cu only")]
        for rule, why in rules:
            out += [f"{path.name}:{line_of(code, m.start())}: {m[0].strip()}: {why}" for m in rule.finditer(code)]
    missing = [name for name in SHARED_FILES if not (folder / name).exists()]
    out += [f"{name} is missing" for name in missing]
    names = []
    if "prelude.cu" not in missing:
        names, wrong = primitives((folder / "prelude.cu").read_text(encoding="utf-8"))
        out += wrong
    if not kernel_files(folder):
        out.append("no kernel file")
    return out, names
