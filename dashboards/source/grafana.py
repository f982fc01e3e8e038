"""Grafana's dashboards as plain data: the classic model (schema 39), which Grafana reads from version 10.4 on."""

from dataclasses import dataclass, field

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "lapwing"


@dataclass
class Query:
    """One query of a panel; `legend` names its series, and `exemplars` are asked for with it."""

    expr: str
    legend: str = ""
    exemplars: bool = False
    instant: bool = False
    format: str = "time_series"


@dataclass
class Panel:
    """What a panel shows, and in its description the question that it answers."""

    kind: str
    title: str
    answers: str
    queries: list
    unit: str = "short"
    width: int = 8
    height: int = 8
    options: dict = field(default_factory=dict)
    defaults: dict = field(default_factory=dict)
    custom: dict = field(default_factory=dict)
    transformations: list = field(default_factory=list)

    def json(self, number, x, y):
        targets = [
            {
                "datasource": SOURCE,
                "editorMode": "code",
                "exemplar": query.exemplars,
                "expr": query.expr,
                "format": query.format,
                "instant": query.instant,
                "legendFormat": query.legend or "__auto",
                "range": not query.instant,
                "refId": chr(ord("A") + at),
            }
            for at, query in enumerate(self.queries)
        ]
        panel = {
            "datasource": SOURCE,
            "description": self.answers,
            "fieldConfig": {"defaults": {"unit": self.unit, **self.defaults, "custom": self.custom}, "overrides": []},
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "id": number,
            "options": self.options,
            "targets": targets,
            "title": self.title,
            "type": self.kind,
        }
        if self.transformations:
            panel["transformations"] = self.transformations
        return panel


def lines(title, answers, *queries, unit="short", stacked=None, logarithmic=False, **more):
    """Lines over time; `stacked` is `normal` or `percent`."""
    custom = {
        "drawStyle": "line",
        "fillOpacity": 60 if stacked else 8,
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": stacked or "none"},
    }
    if logarithmic:
        custom["scaleDistribution"] = {"log": 10, "type": "log"}
    options = {
        "legend": {"calcs": ["mean", "lastNotNull"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel("timeseries", title, answers, list(queries), unit, options=options, custom=custom, defaults={"min": 0} if not logarithmic else {}, **more)


def number(title, answers, *queries, unit="short", steps=(), width=4, height=4, **more):
    """One figure, which changes its colour at each of `steps`: (value, colour)."""
    thresholds = [{"color": "green", "value": None}, *({"color": colour, "value": value} for value, colour in steps)]
    options = {
        "colorMode": "value" if steps else "none",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    }
    defaults = {"noValue": "0", "thresholds": {"mode": "absolute", "steps": thresholds}}
    return Panel("stat", title, answers, list(queries), unit, width, height, options, defaults, **more)


def heatmap(title, answers, expr, unit="s", exemplars=True, **more):
    """Where values lie over time, from native histograms or classic buckets; dots are exemplars."""
    options = {
        "calculate": False,
        "cellGap": 0,
        "color": {"exponent": 0.5, "fill": "dark-orange", "mode": "scheme", "reverse": False, "scale": "exponential", "scheme": "Spectral", "steps": 64},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    custom = {"scaleDistribution": {"log": 2, "type": "log"}}
    return Panel("heatmap", title, answers, [Query(expr, "{{le}}", exemplars, format="heatmap")], unit, options=options, custom=custom, **more)


def bars(title, answers, *queries, unit="short", **more):
    """One bar for each series, of now."""
    options = {
        "displayMode": "basic",
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
        "maxVizHeight": 300,
        "minVizHeight": 10,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "color",
    }
    queries = [Query(one.expr, one.legend, instant=True) for one in queries]
    return Panel("bargauge", title, answers, queries, unit, options=options, defaults={"min": 0}, **more)


def table(title, answers, query, unit="short", hidden=(), **more):
    """One row for each series, of now."""
    excluded = {name: True for name in ("Time", "__name__", *hidden)}
    organize = {"id": "organize", "options": {"excludeByName": excluded, "indexByName": {}, "renameByName": {}}}
    query = Query(query.expr, instant=True, format="table")
    return Panel("table", title, answers, [query], unit, options={"cellHeight": "sm", "frameIndex": 0, "showHeader": True}, transformations=[organize], **more)


def variable(name, label, query, multi=True):
    """A choice among the values of a label; all of them at first. All is `.*`, so that series without the label are shown too."""
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": SOURCE,
        "includeAll": True,
        "label": label,
        "multi": multi,
        "name": name,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def data_source():
    return {"label": "Data source", "name": "datasource", "query": "prometheus", "refresh": 1, "type": "datasource"}


@dataclass
class Dashboard:
    """Rows of panels below each other; a row is (title, panels)."""

    name: str
    title: str
    answers: str
    variables: list
    rows: list

    @property
    def uid(self):
        return f"{TAG}-{self.name}"

    def panels(self):
        return [panel for _, panels in self.rows for panel in panels]

    def json(self):
        found, y = [], 0
        for title, panels in self.rows:
            found.append({"collapsed": False, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}, "id": len(found) + 1, "panels": [], "title": title, "type": "row"})
            y, x, height = y + 1, 0, 0
            for panel in panels:
                if x + panel.width > 24:
                    x, y, height = 0, y + height, 0
                found.append(panel.json(len(found) + 1, x, y))
                x, height = x + panel.width, max(height, panel.height)
            y += height
        link = {"asDropdown": False, "icon": "external link", "includeVars": True, "keepTime": True, "tags": [TAG], "targetBlank": False, "title": "Lapwing"}
        return {
            "annotations": {"list": []},
            "description": self.answers,
            "editable": True,
            "graphTooltip": 1,
            "id": None,
            "links": [{**link, "tooltip": "", "type": "dashboards", "url": ""}],
            "panels": found,
            "refresh": "30s",
            "schemaVersion": 39,
            "tags": [TAG],
            "templating": {"list": [data_source(), *self.variables]},
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "title": f"Lapwing / {self.title}",
            "uid": self.uid,
            "version": 1,
        }
