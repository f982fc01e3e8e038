"""docs/DASHBOARDS.md: what each panel and each alert answers."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
# Dashboards

What the panels of [dashboards/](../dashboards/README.md) answer, which also says how to import them. This page is written by
`dashboards/generate.py` from the same code as the dashboards.
"""
DRAWN = "Drawn by `dashboards/draw.py` from the answers of a real Prometheus to these panels' queries, not by Grafana."
ALERTS = """\
## Alerts

`dashboards/prometheus/lapwing.rules.yaml`; each has a case in `dashboards/prometheus/lapwing.{hours,days}_test.yaml`.

| alert | severity | fires when |
|---|---|---|
"""


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def text(dashboards, alerts):
    parts = [HEAD]
    for one in dashboards:
        parts.append(f"## {one.title}\n\n{one.answers} (`dashboards/grafana/{one.name}.json`)\n")
        picture = f"dashboards/{one.name}.png"
        if (ROOT / "docs" / picture).exists():
            parts.append(f"![The panels of {one.title}]({picture})\n\n{DRAWN}\n")
        for title, panels in one.rows:
            rows = "".join(f"| {panel.title} | {cell(panel.answers)} |\n" for panel in panels)
            parts.append(f"| {title} | |\n|---|---|\n{rows}")
    fires = "".join(f"| `{rule.name}` | {rule.severity} | `{cell(' '.join(rule.expr.split()))}`{f' for {rule.lasts}' if rule.lasts else ''} |\n" for rule in alerts)
    return "\n".join(parts) + "\n" + ALERTS + fires
