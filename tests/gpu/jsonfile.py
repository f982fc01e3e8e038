"""JSON files that one process writes and another reads. Either may be killed at any moment."""

import json
import os
import pathlib


def keep(path, value):
    """Writes a file atomically: the previous file stays until the new one is complete."""
    path = pathlib.Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(value) + "\n", encoding="utf-8")
    os.replace(part, path)


def read(path, notes):
    """The file's value, or None if it is missing, empty or cut off. A file that is cut off adds a note."""
    text = _text(path)
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        notes.append(f"{pathlib.Path(path).name} is cut off and counts as absent ({error})")
        return None


def lines(path, notes):
    """The value of each line. A line that is cut off is left out and adds a note."""
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
