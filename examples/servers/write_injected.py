#!/usr/bin/env python3
"""Writes the file injected.yaml of each recipe: what `lapwing inject server.yaml` prints, with `--config-map lapwing` where there is a
lapwing.yaml.

usage: python3 examples/servers/write_injected.py [--check] [LAPWING]   (LAPWING: the command, `lapwing` by default;
                                                                   --check writes nothing; its exit code is 1 if a file differs)
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def recipes():
    """The folders, by name."""
    return {path.parent.name: path.parent for path in sorted(HERE.glob("*/server.yaml"))}


def injected(lapwing, folder):
    """The manifest with the sidecar, and what the command says of it."""
    options = ["--config-map", "lapwing"] if (folder / "lapwing.yaml").exists() else []
    command = [str(lapwing), "inject", *options, "server.yaml"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"{folder.name}/server.yaml: {made.stderr}")
    return made.stdout, made.stderr


def differing(lapwing):
    """The names of the recipes whose file is not what the command prints."""
    text = lambda path: path.read_text() if path.exists() else None
    return [name for name, folder in recipes().items() if text(folder / "injected.yaml") != injected(lapwing, folder)[0]]


def main(arguments):
    options = [one for one in arguments if one.startswith("-")]
    names = [one for one in arguments if not one.startswith("-")]
    if options not in ([], ["--check"]) or len(names) > 1:
        print(__doc__)
        return 0 if options in (["--help"], ["-h"]) else 2
    lapwing = Path(names[0]).resolve() if names else "lapwing"
    if options:
        for name in differing(lapwing):
            print(f"{name}/injected.yaml is not what lapwing inject prints")
        return 1 if differing(lapwing) else 0
    for folder in recipes().values():
        (folder / "injected.yaml").write_text(injected(lapwing, folder)[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
