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

`dashboards/prometheus/lapwing.rules.yaml` has each with its expression, severity and meaning. Pages: {pages}. Tickets: {tickets}.
"""


def text(dashboards, alerts):
    parts = [HEAD]
    for one in dashboards:
        parts.append(f"## {one.title}\n\n{one.answers} (`dashboards/grafana/{one.name}.json`)\n")
        picture = f"dashboards/{one.name}.png"
        if (ROOT / "docs" / picture).exists():
            parts.append(f"![The panels of {one.title}]({picture})\n")
    named = {severity: ", ".join(f"`{rule.name}`" for rule in alerts if rule.severity == severity) for severity in ("page", "ticket")}
    return "\n".join(parts) + "\n" + ALERTS.format(pages=named["page"], tickets=named["ticket"])
