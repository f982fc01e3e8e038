"""Which metrics and labels a PromQL expression names, and which of them documents do not define.

The definitions are the tables of docs/METRICS.md and docs/ENGINE.md, which tests in Rust compare with the tables in the code.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[a-zA-Z_:][a-zA-Z0-9_:]*|\d[0-9a-z.]*|[{}(),]|=~|!~|!=|==|>=|<=|[-+*/=<>]|\s+|.', re.DOTALL)
NAME = re.compile(r"[a-zA-Z_:]")
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "bool", "offset"}
AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
FUNCTIONS = {"rate", "increase", "histogram_quantile", "histogram_count", "histogram_sum", "avg_over_time", "label_replace", "vector", "round"}
FROM_OUTSIDE = {"namespace", "pod", "job", "instance", "le"}
"""What service discovery adds, and the bound of a classic bucket."""


def names(expr):
    """(metric, labels that its matchers name) for each selector, and the labels that the rest of the expression groups by."""
    selectors, grouped = [], set()
    tokens = [token for token in TOKEN.findall(expr) if not token.isspace()]
    at = 0

    def within(closing):
        nonlocal at
        found = []
        while tokens[at] != closing:
            at += 1
            found.append(tokens[at])
        return found

    while at < len(tokens):
        token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in GROUPING:
            if following == "(":
                at += 1
                grouped.update(one for one in within(")") if NAME.match(one))
        elif NAME.match(token) and token not in WORDS and following != "(" and not (token in AGGREGATIONS and following in GROUPING):
            labels = set()
            if following == "{":
                at += 1
                labels.update(one for one in within("}") if NAME.match(one))
            selectors.append((token, labels))
        elif NAME.match(token) and following == "(" and token not in AGGREGATIONS | FUNCTIONS | WORDS:
            selectors.append((token, set()))  # a function that is none of these is taken for a metric, which it is not
        at += 1
    return selectors, grouped


def defined():
    """The labels of each sample that Lapwing exposes, by its name as Prometheus stores it."""
    found = {}
    for document in ("METRICS.md", "ENGINE.md"):
        for name, kind, labels in re.findall(r"(?m)^(?:\| )?`([a-z_]+)` \| (counter|gauge|histogram) \| ([^|]*)\|", (ROOT / "docs" / document).read_text()):
            of = set(re.findall(r"`(\w+)`", labels))
            found[name] = of
            if kind == "histogram":
                found.update({name + "_bucket": of, name + "_sum": of, name + "_count": of})
    return found


def faults(expr, table):
    """What an expression, or its selectors, name that the table does not have."""
    selectors, grouped = names(expr)
    wrong, known = [], set(FROM_OUTSIDE)
    for metric, labels in selectors:
        if metric not in table:
            wrong.append(f"there is no metric {metric}")
            continue
        known |= table[metric]
        wrong += [f"{metric} has no label {label}" for label in sorted(labels - table[metric] - FROM_OUTSIDE)]
    if not selectors:
        wrong.append("it names no metric")
    return wrong + [f"no metric has the label {label}" for label in sorted(grouped - known)]
