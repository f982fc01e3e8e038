#!/usr/bin/env python3
"""Pictures of the live page under the demo's load, as docs/STATS.md shows them: 1280 and 390 pixels wide, light and dark.

usage: .venv/bin/python benches/page.py [--lapwing PATH] [--seconds S] [--out FOLDER]
       needs Debian's chromium, and Python's playwright (tests/requirements.txt).
"""

import argparse
import pathlib
import shutil
import subprocess
import time

from parts import ROOT, free_port

SIZES = {"wide": (1280, 1250), "narrow": (390, 844)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapwing", default=ROOT / "target/release/lapwing", help="the binary (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=90, help="how long the demo runs before (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/page", help="where to (default: %(default)s)")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    options.out.mkdir(parents=True, exist_ok=True)
    admin = free_port()
    command = [options.lapwing, "demo", "--admin", f"127.0.0.1:{admin}", "--seconds", str(int(options.seconds + 60))]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--no-proxy-server"])
            pages = {}
            for name, (width, height) in SIZES.items():
                for scheme in ("light", "dark"):
                    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                    pages[f"{name}-{scheme}"] = page
            time.sleep(5)
            for page in pages.values():
                page.goto(f"http://127.0.0.1:{admin}/")
            time.sleep(options.seconds)
            for name, page in pages.items():
                page.screenshot(path=str(options.out / f"{name}.png"))
            browser.close()
    finally:
        demo.kill()
        demo.wait()


if __name__ == "__main__":
    raise SystemExit(main())
