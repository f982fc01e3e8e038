#!/usr/bin/env python3
"""Writes the dashboards, the rules, the chart's copies of both, and docs/DASHBOARDS.md from the code in source/.

usage: python3 dashboards/generate.py [--check]   (--check writes nothing; its exit code is 1 if a file is not what it would write)
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = "deploy/charts/lapwing/files"
"""A chart reads no file outside itself, so it has copies."""
sys.dont_write_bytecode = True
sys.path.append(str(ROOT / "dashboards"))
from source import comparisons, documents, generative, health, rules, traffic  # noqa: E402

DASHBOARDS = [
    traffic.overview(),
    traffic.stages(),
    traffic.work(),
    generative.generative(),
    comparisons.shadow(),
    comparisons.engine(),
    health.lapwing(),
]


def files():
    """The text of each file, by its path in the repository."""
    found = {f"dashboards/grafana/{one.name}.json": json.dumps(one.json(), indent=1, ensure_ascii=False) + "\n" for one in DASHBOARDS}
    found["dashboards/prometheus/lapwing.rules.yaml"] = rules.text()
    found |= {f"{CHART}/dashboards/{one.name}.json": found[f"dashboards/grafana/{one.name}.json"] for one in DASHBOARDS}
    found[f"{CHART}/lapwing.rules.yaml"] = rules.text()
    found["docs/DASHBOARDS.md"] = documents.text(DASHBOARDS, rules.ALERTS)
    return found


def differing():
    """The files that are not what the code gives."""
    text = lambda path: path.read_text() if path.exists() else None
    return [name for name, wanted in files().items() if text(ROOT / name) != wanted]


def main(arguments):
    if arguments in (["--help"], ["-h"]) or arguments not in ([], ["--check"]):
        print(__doc__)
        return 0 if arguments and arguments[0] in ("--help", "-h") else 2
    if arguments:
        for name in differing():
            print(f"{name} is not what dashboards/generate.py writes")
        return 1 if differing() else 0
    for name, text in files().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
