"""`lapwing merge` and `lapwing compare` on the logs of real Lapwings, beside Python's HdrHistogram."""

import http.client
import re
import subprocess
import urllib.parse

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from process import wait_for
from test_admin_reads import Asked

pytestmark = pytest.mark.beside


class Pod(Asked):
    """A Lapwing, and its log after some requests."""

    def load(self, requests, ms, folder, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        for _ in range(requests):
            connection.request("POST", f"/v2/models/m/infer?ms={ms}", b"{}")
            assert connection.getresponse().read() is not None
        connection.close()
        wait_for(lambda: sum(one["count"] for one in self.json("/stats?window=all")["series"]) == requests, 20, "all are counted")
        path = folder / f"{name}.hlog"
        path.write_text(self.get("/hdr")[2])
        return path


@pytest.fixture(scope="module")
def hdr_logs(processes, binary, raw_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    pods = {name: Pod(processes, binary, raw_server.url) for name in ("fast", "also_fast", "slow")}
    return {name: pods[name].load(600, 12 if name == "slow" else 4, folder, name) for name in pods}


def histograms(path):
    """Every histogram of a log by its tag, as Python's library reads them."""
    reader, found = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 3)), {}
    while (one := reader.get_next_interval_histogram()) is not None:
        found[one.get_tag()] = one
    return found


def run(binary, *args, code=0):
    done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_a_merged_log_has_every_request_of_each(binary, hdr_logs, tmp_path):
    out = tmp_path / "all.hlog"
    text = run(binary, "merge", *hdr_logs.values(), "--out", out)
    parts, merged = [histograms(path) for path in hdr_logs.values()], histograms(out)
    assert merged.keys() == set().union(*parts)
    for tag, histogram in merged.items():
        own = [part[tag] for part in parts if tag in part]
        assert histogram.get_total_count() == sum(one.get_total_count() for one in own)
        for one in own[1:]:
            own[0].add(one)
        assert [histogram.get_value_at_percentile(p) for p in (50, 90, 99)] == [own[0].get_value_at_percentile(p) for p in (50, 90, 99)]
    assert re.search(r"(?m)^  total +1800 ", text) and "POST /v2/models/{model}/infer, model m" in text
    # a merged log is a log
    assert run(binary, "merge", out) == text
    one = urllib.parse.unquote(next(iter(merged)))
    assert "POST /v2/models" in one


def test_what_changed_is_named_stage_by_stage(binary, hdr_logs):
    text = run(binary, "compare", hdr_logs["fast"], hdr_logs["slow"])
    (total,) = re.findall(r"(?m)^  total .*", text)
    (upstream,) = re.findall(r"(?m)^  upstream  .*", text)
    assert "600 → 600" in total and "slower" in total and "slower" in upstream, text
    (told,) = re.findall(r"(?m)^  mean .*", text)
    assert re.search(r"of which upstream \+\d+(\.\d+)? ms", told), told
    (back,) = re.findall(r"(?m)^  total .*", run(binary, "compare", hdr_logs["slow"], hdr_logs["fast"]))
    assert "faster" in back


def test_what_did_not_change_is_not_named(binary, hdr_logs):
    (total,) = re.findall(r"(?m)^  total .*", run(binary, "compare", hdr_logs["fast"], hdr_logs["fast"]))
    assert "slower" not in total and "faster" not in total
    text = run(binary, "compare", hdr_logs["fast"], hdr_logs["also_fast"])
    assert "only before" not in text and "only after" not in text


def test_what_is_no_log_is_named(binary, hdr_logs, tmp_path):
    broken = tmp_path / "broken.hlog"
    broken.write_text(hdr_logs["fast"].read_text().replace("HISTF", "XXXXX", 1))
    assert "broken.hlog: interval 1:" in run(binary, "merge", hdr_logs["fast"], broken, code=65)
    assert "none.hlog" in run(binary, "compare", hdr_logs["fast"], tmp_path / "none.hlog", code=65)
    (tmp_path / "stats.json").write_text('{"series": []}')
    assert "interval log" in run(binary, "merge", tmp_path / "stats.json", code=65)
    assert "folder" in run(binary, "merge", hdr_logs["fast"], "--out", tmp_path / "folder" / "x.hlog", code=73)
