"""docs/DASHBOARDS.md: what each panel and each alert answers."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
# Dashboards

What the dashboards of [dashboards/](../dashboards/README.md) answer, which also says how to import them. The description of each panel (*i* in Grafana) is the
question that it answers. This page is written by `dashboards/generate.py` from the same code. The pictures are drawn by `dashboards/draw.py` from the answers of a
real Prometheus to these panels' queries, not by Grafana.
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
        parts.append("".join(f"- {title}: {'; '.join(panel.title for panel in panels)}\n" for title, panels in one.rows))
    says = "".join(f"| `{rule.name}` | {rule.severity} | {cell(rule.description.split('. ')[0].rstrip('.'))} |\n" for rule in alerts)
    return "\n".join(parts) + "\n" + ALERTS + says
