"""docs/DASHBOARDS.md: what each dashboard and each alert answers."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
# Dashboards

[dashboards/](../dashboards/README.md) says how to import these dashboards. The description of each panel (*i* in Grafana) is the question that it answers.
`dashboards/generate.py` writes this page; `dashboards/draw.py` draws the pictures from the answers of a real Prometheus to the panels' queries.
"""
ALERTS = """\
## Alerts

`dashboards/prometheus/lapwing.rules.yaml` has the expressions; each has a case in `dashboards/prometheus/lapwing.{hours,days}_test.yaml`.

| alert | severity | meaning |
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
            parts.append(f"![The panels of {one.title}]({picture})\n")
    says = "".join(f"| `{rule.name}` | {rule.severity} | {cell(rule.description.split('. ')[0].rstrip('.'))} |\n" for rule in alerts)
    return "\n".join(parts) + "\n" + ALERTS + says
