#!/usr/bin/env python3
"""Which executor runs which ONNX files, whether it agrees with ONNX Runtime, and in what part of its time: docs/MODELS.md.

usage: python3 benches/models.py LAPWING FOLDER ORT_LIB [--list FILE] > docs/MODELS.md
LAPWING is the command, FOLDER has .onnx files in folders by family (FOLDER/*/FAMILY/...; `real` are files that people ship, anything else
was made), ORT_LIB is ONNX Runtime's library. Each file is described by `lapwing engine inspect --json`: with the library, against which
another executor is held on generated calls of 1 and 7 rows, and without it; then the executor that was chosen without it is held against
the library too. Times are those that the command measures when it loads a model: both in turn, on one thread. `--list`
writes a line for each file.
"""
import collections, datetime, json, math, os, pathlib, platform, statistics, subprocess, sys

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


def look(lapwing, path, folder, library):
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
    ratio = lambda about: math.exp(statistics.fmean(math.log(call["executor_ns"] / call["onnxruntime_ns"]) for call in about["measured"])) if about and about["measured"] else None
    operators = (found or alone or {}).get("operators", {})
    return {
        "operators": sorted(operators, key=operators.get, reverse=True),
        "with ratio": ratio(found) if found and found["executor"] != "onnxruntime" else None,
        "without ratio": ratio(held) if agrees else None,
        "with": found["executor"] if found else "none",
        "without": alone["executor"] if alone else "none",
        "agrees": agrees,
        "why": why.replace(f"{folder}/", ""),
        "library": ((found or {}).get("onnxruntime") or {}).get("version"),
    }


def median(rows, key):
    ratios = [row[key] for row in rows if row[key] is not None]
    return f"{statistics.median(ratios):.2f} ({len(ratios)})" if ratios else ""


def line(name, rows):
    counted = lambda key: ", ".join(f"{name} {count}" for name, count in collections.Counter(row[key] for row in rows).most_common())
    agree = sum(row["agrees"] for row in rows)
    cells = [name, len(rows), counted("with"), median(rows, "with ratio"), counted("without"), agree, median(rows, "without ratio")]
    print("| " + " | ".join(map(str, cells)) + " |")


def table(rows):
    print("| family | files | with the library | time | without it | agree | time |")
    print("|---|---|---|---|---|---|---|")
    families = collections.defaultdict(list)
    for (family, _), row in sorted(rows.items()):
        families[family].append(row)
    for family, of in families.items():
        line(family, of)
    line("**all**", list(rows.values()))


def page(rows, library):
    version = next((row["library"] for row in rows.values() if row["library"]), library)
    print("# Models\n")
    print("<!-- Made by benches/models.py; do not edit. -->\n")
    print("Which executor runs which ONNX files: files that Python and npm packages ship (`real`), and exports of scikit-learn, LightGBM, XGBoost,")
    print("PyTorch and transformers (the others). *With the library*: ONNX Runtime's library is found; *without it*: what Lapwing runs by itself.")
    print("*agree*: files of which the executor without the library answers as ONNX Runtime does on generated calls. *time*: the median of its")
    print("time over ONNX Runtime's on the same calls, on one thread, and of how many files; none where ONNX Runtime itself runs the model. A file")
    print("of which ONNX Runtime takes no generated call (ids beyond a table, lengths that do not fit) is not compared, and does not agree.\n")
    print(f"Made on {datetime.date.today()}, {os.cpu_count()} processors ({processor()}), ONNX Runtime {version}. Each file, with")
    print("its operators and the reason why it does not run or agree: `benches/results/models.tsv`.\n")
    table(rows)


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())


def main():
    lapwing, folder, library = sys.argv[1:4]
    paths = sorted(pathlib.Path(folder).glob("*/*/**/*.onnx"))
    if not paths:
        raise SystemExit(f"{folder}: has no folders of .onnx files by family")
    # one at a time: they are timed
    looked = [look(lapwing, path, folder, library) for path in paths]
    key = lambda path: ("/".join(path.relative_to(folder).parts[:2]), str(path.relative_to(folder)))
    rows = {key(path): row for path, row in zip(paths, looked)}
    page(rows, library)
    if "--list" in sys.argv:
        shown = lambda ratio: "" if ratio is None else f"{ratio:.3f}"
        lines = ["file\twith\ttime\twithout\tagrees\ttime\toperators\twhy"]
        for (_, name), row in sorted(rows.items()):
            cells = [name, row["with"], shown(row["with ratio"]), row["without"], str(row["agrees"]).lower(), shown(row["without ratio"])]
            lines.append("\t".join([*cells, " ".join(row["operators"]), row["why"]]))
        pathlib.Path(sys.argv[sys.argv.index("--list") + 1]).write_text("\n".join(lines) + "\n")


main()
