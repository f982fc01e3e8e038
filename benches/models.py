#!/usr/bin/env python3
"""Which executor runs which ONNX files, and whether it agrees with ONNX Runtime: the tables of docs/MODELS.md.

usage: python3 benches/models.py LAPWING FOLDER ORT_LIB [--list FILE] > table.md
LAPWING is the command, FOLDER has .onnx files in folders by family (FOLDER/*/FAMILY/...; `real` are files that people ship, anything else
was made), ORT_LIB is ONNX Runtime's library. Each file is described twice by `lapwing engine inspect --json`: with the library, against which
another executor is held on generated calls of 1 and 7 rows, and without it; then the executor that was chosen without it is held against
the library too. `--list` writes a line for each file.
"""
import collections, json, pathlib, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

if {"-h", "--help"} & set(sys.argv):
    print(__doc__)
    raise SystemExit

LIMIT_S = 180


def inspect(lapwing, path, library, executor="auto"):
    """What `inspect` says, or its error."""
    command = [lapwing, "engine", "inspect", str(path), "--json", "--ort-lib", library, "--executor", executor]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {LIMIT_S} s"
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr.strip().replace("\n", " "))


def look(lapwing, path, library):
    """With the library, without it, and the latter's executor against the library."""
    found, error = inspect(lapwing, path, library)
    alone, alone_error = inspect(lapwing, path, "off")
    held, held_error = (None, "")
    if alone and not (found and found["executor"] == alone["executor"]):
        held, held_error = inspect(lapwing, path, library, alone["executor"])
    elif alone:
        held = found
    agrees = bool(held) and held["verification"].startswith("agrees")
    why = held_error or (held["verification"] if held and not agrees else "") or alone_error or error
    return {
        "with": found["executor"] if found else "none",
        "without": alone["executor"] if alone else "none",
        "agrees": agrees,
        "why": why,
    }


def table(rows):
    print("| family | files | with the library | without it | agree with ONNX Runtime |")
    print("|---|---|---|---|---|")
    families = collections.defaultdict(list)
    for (family, _), row in sorted(rows.items()):
        families[family].append(row)
    counted = lambda key, of: ", ".join(f"{name} {count}" for name, count in collections.Counter(row[key] for row in of).most_common())
    for family, of in families.items():
        print(f"| {family} | {len(of)} | {counted('with', of)} | {counted('without', of)} | {sum(row['agrees'] for row in of)} |")
    every = list(rows.values())
    print(f"| **all** | {len(every)} | {counted('with', every)} | {counted('without', every)} | {sum(row['agrees'] for row in every)} |")


def main():
    lapwing, folder, library = sys.argv[1:4]
    paths = sorted(pathlib.Path(folder).glob("*/*/**/*.onnx"))
    if not paths:
        raise SystemExit(f"{folder}: has no folders of .onnx files by family")
    with ThreadPoolExecutor(2) as pool:
        looked = list(pool.map(lambda path: look(lapwing, path, library), paths))
    key = lambda path: ("/".join(path.relative_to(folder).parts[:2]), str(path.relative_to(folder)))
    rows = {key(path): row for path, row in zip(paths, looked)}
    table(rows)
    if "--list" in sys.argv:
        lines = ["\t".join([name, row["with"], row["without"], str(row["agrees"]), row["why"]]) for (_, name), row in sorted(rows.items())]
        pathlib.Path(sys.argv[sys.argv.index("--list") + 1]).write_text("\n".join(lines) + "\n")


main()
