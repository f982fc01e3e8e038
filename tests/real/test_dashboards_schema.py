"""The dashboards' JSON against the types of @grafana/schema, by the TypeScript compiler: an unknown field or value is an error.

tests/run installs both packages where npm is there. Queries of Prometheus are in no type of the package; their fields are listed here.
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from promql_names import ROOT
from test_dashboards import dashboards, drawn

pytestmark = pytest.mark.beside
MODULES = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tmp/npm/node_modules"
TSC = MODULES / "typescript/bin/tsc"
TYPES = pathlib.Path(__file__).with_name("grafana_schema.ts")
QUERY = {"datasource", "editorMode", "exemplar", "expr", "format", "instant", "legendFormat", "range", "refId"}
OPTIONS = ["--noEmit", "--strict", "--skipLibCheck", "--module", "preserve", "--moduleResolution", "bundler", "--target", "es2022"]

needs_types = pytest.mark.skipif(not (TSC.exists() and shutil.which("node")), reason="@grafana/schema is not installed: it needs npm")


def checked(found, folder):
    """What the compiler says of these dashboards; empty if nothing."""
    lines = ["import type { Custom, Dashboard, Options } from './grafana_schema';"]
    for dashboard in found:
        lines.append(f"({json.dumps(dashboard)}) satisfies Dashboard;")
        for panel in drawn(dashboard):
            lines.append(f"({json.dumps(panel['options'])}) satisfies Options['{panel['type']}'];")
            lines.append(f"({json.dumps(panel['fieldConfig']['defaults']['custom'])}) satisfies Custom['{panel['type']}'];")
    (folder / "node_modules").symlink_to(MODULES)
    (folder / "grafana_schema.ts").write_text(TYPES.read_text())
    (folder / "dashboards.ts").write_text("\n".join(lines))
    done = subprocess.run(["node", TSC, *OPTIONS, "dashboards.ts"], cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode != 0) == bool(done.stdout), done.stderr
    return done.stdout


@needs_types
def test_every_field_of_the_dashboards_is_one_of_grafanas(tmp_path):
    assert checked(dashboards(), tmp_path) == ""


@needs_types
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"schemaVersion"', '"schemaVersions"'),
        ('"mode": "multi"', '"mode": "many"'),
        ('"reduceOptions"', '"reduceOption"'),
        ('"drawStyle": "line"', '"drawStyle": "lines"'),
        ('"gridPos": {"h": 8', '"gridPos": {"h": "8"'),
    ],
)
def test_a_field_or_value_that_grafana_does_not_know_is_found(right, wrong, tmp_path):
    text = json.dumps(dashboards()[0])
    assert right in text
    assert checked([json.loads(text.replace(right, wrong))], tmp_path).startswith("dashboards.ts(")


def test_queries_have_the_fields_of_a_prometheus_query():
    for dashboard in dashboards():
        for panel in drawn(dashboard):
            for target in panel["targets"]:
                assert target.keys() == QUERY, panel["title"]
                assert target["format"] in ("time_series", "table", "heatmap") and target["instant"] != target["range"], panel["title"]
