"""h2spec, the conformance suite of HTTP/2, on the data plane's listener. tests/run installs it where Go is there."""

import os
import pathlib
import shutil
import subprocess
import xml.etree.ElementTree

import pytest
from fake import Upstream
from sidecar import ROOT, Sidecar

TOOLS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tmp/go/bin"
H2SPEC = shutil.which("h2spec", path=f"{TOOLS}:{os.environ['PATH']}")

CASES = 140
"""There are at least so many; 2.2.1 has 146."""

JUSTIFIED = {
    ("http2/3.5", "Sends invalid connection preface"): "The port serves HTTP/1.1 too, so what is no preface is an HTTP/1.1 request: it is "
    "answered with 400 and the connection is closed, as RFC 9112 has it. h2spec reads the answer as a frame.",
}
"""What may fail, and why. docs/SECURITY.md has it too."""


def failures(report):
    """The number of cases, and what failed: the section and the case, with what was seen instead."""
    cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    faults = {(case.get("package"), case.get("classname")): [*case.iter("failure"), *case.iter("error")] for case in cases}
    return len(cases), {case: "".join(of[0].itertext()) for case, of in faults.items() if of}


@pytest.mark.skipif(not H2SPEC, reason="h2spec is not installed: it needs Go")
def test_every_case_of_h2spec(tmp_path):
    report = tmp_path / "report.xml"
    with Upstream() as up, Sidecar(up.url) as proxy:
        command = [H2SPEC, "--port", str(proxy.port), "--timeout", "5", "--strict", "--junit-report", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50)
        assert proxy.process.poll() is None
        proxy.ended_on_purpose = True  # its counts are those of broken clients
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    cases, failed = failures(report)
    assert cases >= CASES
    assert failed.keys() == JUSTIFIED.keys(), failed
