"""JSON files that one process writes and another reads, of which either may be killed at any moment."""

import json
import os
import pathlib


def keep(path, value):
    """Writes a file whole or not at all: what was there stays until the new one is complete."""
    path = pathlib.Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(value) + "\n", encoding="utf-8")
    os.replace(part, path)


def read(path, notes):
    """What a file has; None where it is not there, is empty, or is cut off, of which the last is noted."""
    text = _text(path)
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        notes.append(f"{pathlib.Path(path).name} is cut off and counts as absent ({error})")
        return None


def lines(path, notes):
    """One value of each line; a line that is cut off is left out, and noted."""
    found = []
    for at, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            notes.append(f"{pathlib.Path(path).name}: line {at} is cut off and left out")
    return found


def _text(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
