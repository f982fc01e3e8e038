#!/usr/bin/env python3
"""Draws the panels of each dashboard from the answers of a real Prometheus, for docs/dashboards; Grafana is not needed.

Starts the four Lapwings and the load of tests/real/demo_load.py and a Prometheus with native histograms, waits --seconds, asks every
panel's queries as Grafana does, and writes docs/dashboards/NAME.png. With --prometheus URL it asks that one instead.

usage: python3 dashboards/draw.py [--prometheus URL] [--seconds N] [--lapwing PATH] [--out FOLDER]
Needs matplotlib (3.11), and without --prometheus the packages of tests/requirements.txt and Debian's prometheus.
"""

import argparse
import contextlib
import json
import math
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("tests/real", "tests", "dashboards")]
sys.dont_write_bytecode = True
STEPS, WINDOW = 120, "15s"
UNITS = {"s": (1, "s"), "bytes": (1, "B"), "Bps": (1, "B/s"), "reqps": (1, "req/s"), "ops": (1, "/s"), "percentunit": (100, "%"), "short": (1, "")}
COLUMN, LINE, PAD = 0.62, 0.34, 0.12
"""Inches of a column and of a line of Grafana's grid."""


def as_text(value, unit):
    factor, name = UNITS[unit]
    value *= factor
    if name == "%" or value == 0:
        return f"{value:.3g} {name}".strip()
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p")):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{name}".strip()
    return f"{value:.2g} {name}"


class Asked:
    """A Prometheus, and the time range that is drawn."""

    def __init__(self, url, seconds):
        self.url, self.end, self.seconds = url, time.time(), seconds

    def get(self, path, **query):
        query["query"] = re.sub(r"\$(?:namespace|pod|route|model|stage|target)\b", ".*", query["query"]).replace("$__rate_interval", WINDOW)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as response:
            return json.load(response)["data"]["result"]

    def over_time(self, query):
        return self.get("query_range", query=query, start=self.end - self.seconds, end=self.end, step=self.seconds / STEPS)

    def now(self, query):
        return self.get("query", query=query, time=self.end)


def legend(target, labels):
    text = target["legendFormat"]
    if text == "__auto":
        return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()) if name != "__name__") or "value"
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), text).strip() or "value"


def series_of(asked, panel):
    """(name, times, values) of each line."""
    for target in panel["targets"]:
        for one in asked.over_time(target["expr"]):
            if values := one.get("values"):
                yield legend(target, one["metric"]), [at - asked.end for at, _ in values], [float(value) for _, value in values]


def draw_lines(axes, asked, panel):
    custom, unit = panel["fieldConfig"]["defaults"]["custom"], panel["fieldConfig"]["defaults"]["unit"]
    found = sorted(series_of(asked, panel), key=lambda one: -max((v for v in one[2] if math.isfinite(v)), default=0))[:8]
    stacking = custom["stacking"]["mode"]
    if stacking != "none" and found:
        times = sorted({round(t, 3) for _, at, _ in found for t in at})
        columns = [dict(zip((round(t, 3) for t in at), values)) for _, at, values in found]
        rows = [[column.get(t, 0.0) if math.isfinite(column.get(t, 0.0)) else 0.0 for t in times] for column in columns]
        if stacking == "percent":
            sums = [sum(part) or 1 for part in zip(*rows)]
            rows, unit = [[value / total for value, total in zip(row, sums)] for row in rows], "percentunit"
        axes.stackplot(times, rows, labels=[name for name, _, _ in found], alpha=0.8, linewidth=0)
    else:
        for name, times, values in found:
            axes.plot(times, values, label=name, linewidth=1)
    if "scaleDistribution" in custom:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: as_text(value, unit))
    if "scaleDistribution" in custom:
        axes.yaxis.set_minor_formatter(lambda *_: "")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} s")
    axes.grid(alpha=0.25)
    if found:
        axes.legend(fontsize=5, loc="upper left", framealpha=0.6, ncols=1 + (len(found) > 4), borderpad=0.2, labelspacing=0.2, handlelength=1)


def buckets_of(one):
    """(time, lower, upper, count) of each bucket of a series of native histograms."""
    for at, histogram in one.get("histograms", []):
        for _, lower, upper, count in histogram.get("buckets", []):
            yield at, float(lower), float(upper), float(count)


def classic_buckets(found):
    """The same from classic buckets, which are cumulative."""
    columns = {}
    for one in found:
        for at, value in one.get("values", []):
            columns.setdefault(at, []).append((float(one["metric"]["le"]), float(value)))
    for at, column in columns.items():
        below, lower = 0.0, None
        for upper, value in sorted(column):
            if math.isfinite(upper):
                yield at, lower if lower is not None else upper / 2.5, upper, value - below
            below, lower = value, upper


def draw_heat(axes, asked, panel):
    unit, step = panel["fieldConfig"]["defaults"]["unit"], asked.seconds / STEPS
    found = asked.over_time(panel["targets"][0]["expr"])
    cells = [cell for one in found for cell in buckets_of(one)] or list(classic_buckets(found))
    cells = [cell for cell in cells if cell[3] > 1e-9 and cell[1] > 0]
    # by the width of a bucket, so that a histogram that becomes coarser does not become redder
    cells = [(at, low, high, count / math.log(high / low)) for at, low, high, count in cells]
    most = max((density for *_, density in cells), default=1)
    import matplotlib
    from matplotlib.collections import PolyCollection

    colours = matplotlib.colormaps["Spectral_r"]
    spans = [(at - asked.end - step, at - asked.end, low, high) for at, low, high, _ in cells]
    corners = [((begin, low), (end, low), (end, high), (begin, high)) for begin, end, low, high in spans]
    axes.add_collection(PolyCollection(corners, facecolors=[colours((density / most) ** 0.5) for *_, density in cells], linewidths=0))
    axes.set_xlim(-asked.seconds, 0)
    if cells:
        axes.set_ylim(min(low for _, low, _, _ in cells), max(high for _, _, high, _ in cells))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: as_text(value, unit))
    axes.yaxis.set_minor_formatter(lambda *_: "")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} s")


def rows_of(asked, panel):
    target = panel["targets"][0]
    return [(legend(target, one["metric"]), float(one["value"][1]), one["metric"]) for one in asked.now(target["expr"]) if "value" in one]


def draw_bars(axes, asked, panel):
    rows = sorted(rows_of(asked, panel), key=lambda row: row[1])[-12:]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.barh([name for name, _, _ in rows], [value for _, value, _ in rows], color="#e08b27")
    for at, (_, value, _) in enumerate(rows):
        axes.text(value, at, " " + as_text(value, unit), va="center", fontsize=6)
    axes.xaxis.set_major_formatter(lambda value, _: as_text(value, unit))
    axes.margins(x=0.2)


def draw_number(axes, asked, panel):
    rows = [value for _, value, _ in rows_of(asked, panel)]
    text = as_text(rows[0], panel["fieldConfig"]["defaults"]["unit"]) if rows and math.isfinite(rows[0]) else "0"
    axes.axis("off")
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=15, color="#2b6cb0", transform=axes.transAxes)


def draw_table(axes, asked, panel):
    hidden = panel["transformations"][0]["options"]["excludeByName"]
    rows, unit = rows_of(asked, panel)[:10], panel["fieldConfig"]["defaults"]["unit"]
    axes.axis("off")
    names = sorted({name for _, _, labels in rows for name in labels})
    cells = [[labels.get(name, "") for name in names] + ([] if "Value" in hidden else [as_text(value, unit)]) for _, value, labels in rows]
    if cells:
        drawn = axes.table(cells, colLabels=names + ([] if "Value" in hidden else ["value"]), loc="upper center", cellLoc="left")
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(6)
        drawn.auto_set_column_width(list(range(len(cells[0]))))


KINDS = {"timeseries": draw_lines, "heatmap": draw_heat, "bargauge": draw_bars, "stat": draw_number, "table": draw_table}


def picture(asked, dashboard, path):
    from matplotlib import pyplot
    from PIL import Image

    pyplot.rcParams.update({"font.size": 6, "axes.spines.top": False, "axes.spines.right": False})
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    width, height = 24 * COLUMN, max(place["y"] + place["h"] for place in places) * LINE
    figure = pyplot.figure(figsize=(width, height), dpi=100)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] * COLUMN / width, 1 - place["y"] * LINE / height
        if panel["type"] == "row":
            figure.text(left + PAD / width, top - 0.7 * LINE / height, panel["title"], fontsize=10, weight="bold")
            continue
        margin = 0.1 if panel["type"] in ("stat", "table") else 1.5 if panel["type"] == "bargauge" else 0.5
        bottom, across, up = top - (place["h"] * LINE - 0.25) / height, place["w"] * COLUMN - margin - PAD, place["h"] * LINE - 0.6
        axes = figure.add_axes((left + margin / width, bottom, across / width, up / height))
        axes.set_title(panel["title"], fontsize=7, loc="left")
        KINDS[panel["type"]](axes, asked, panel)
    figure.savefig(path)
    pyplot.close(figure)
    Image.open(path).convert("RGB").quantize(48, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


@contextlib.contextmanager
def demo(binary, seconds):
    """The load of the tests, and a Prometheus that has scraped it for so long; its address."""
    from demo_load import Fleet
    from engine import fixtures
    from lapwing import Lapwing
    from ports import free_port
    from process import Process, wait_listening
    from prometheus import Prometheus
    from shadowing import WIDTHS

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = fixtures.mlp(folder / "small_mlp.onnx", WIDTHS)
        start_process = lambda what, command, **kw: Process(what, command, folder, **kw)
        start_lapwing = lambda upstream, *flags, **kw: Lapwing(binary, folder, upstream, *flags, **kw).wait_live()

        def start_server(*options):
            port = free_port()
            start_process("oip_server", [sys.executable, str(ROOT / "tests/real/servers/oip_server.py"), str(port), str(model), *options])
            wait_listening(port, 60)
            return port

        try:
            with Fleet(start_lapwing, start_server, model, folder) as fleet:
                prometheus = Prometheus(start_process, folder, fleet.scraped())
                time.sleep(seconds)
                fleet.check()
                yield f"http://127.0.0.1:{prometheus.port}"
        finally:
            for process in reversed(Process.all):
                process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", metavar="URL", help="ask this Prometheus instead of one under the demo's load")
    parser.add_argument("--seconds", type=int, default=150, help="the time range, until now (default: 150)")
    parser.add_argument("--lapwing", default=str(ROOT / "target/debug/lapwing"), help="the binary (default: target/debug/lapwing)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/dashboards", help="where the pictures go (default: docs/dashboards)")
    options = parser.parse_args()
    import matplotlib

    matplotlib.use("agg")
    import generate

    options.out.mkdir(parents=True, exist_ok=True)
    source = contextlib.nullcontext(options.prometheus) if options.prometheus else demo(options.lapwing, options.seconds)
    with source as url:
        asked = Asked(url, options.seconds)
        for dashboard in generate.DASHBOARDS:
            picture(asked, dashboard.json(), options.out / f"{dashboard.name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
