"""PromQL over Lapwing's metrics, for dashboards and rules alike.

A histogram may be stored as a native one, as classic buckets, or both. Every expression over a histogram asks for the native one
`or` for the classic one, so that one text serves each kind of Prometheus. What is not stored costs next to nothing to ask.
"""

RATE = "$__rate_interval"
"""Grafana's shortest window in which every series has enough samples for a rate."""
POD = 'namespace=~"$namespace",pod=~"$pod"'
"""The pods that the dashboard shows."""
SERIES = POD + ',route=~"$route",model=~"$model"'
"""The same, and the routes and models."""
MODEL = POD + ',model=~"$model"'
"""For metrics without a route."""
TARGET = POD + ',target=~"$target"'
"""For shadow targets."""
SHADOWED = TARGET + ',route=~"$route",model=~"$model"'
"""For shadow targets by route and model."""
BUDGETS = {"p50": 0.5, "p90": 0.1, "p99": 0.01, "p999": 0.001}
"""By the name of a budget, the share of requests that may take longer."""


def select(name, scope=SERIES, where=""):
    """A metric with its matchers."""
    matchers = ",".join(part for part in (where, scope) if part)
    return f"{name}{{{matchers}}}" if matchers else name


def by(labels):
    return f" by ({labels})" if labels else ""


def total(expression, labels=""):
    return f"sum{by(labels)} ({expression})"


def counter(name, labels="", where="", scope=SERIES, over=RATE):
    """Per second, over all series of equal labels."""
    return total(f"rate({select(name, scope, where)}[{over}])", labels)


def gauge(name, labels="", where="", scope=SERIES, how="sum"):
    return f"{how}{by(labels)} ({select(name, scope, where)})"


class Histogram:
    """A histogram over all series of equal labels, whichever way it is stored."""

    def __init__(self, name, scope=SERIES):
        self.name, self.scope = name, scope

    def native(self, labels="", where="", over=RATE):
        return counter(self.name, labels, where, self.scope, over)

    def part(self, suffix, labels="", where="", over=RATE):
        return counter(self.name + suffix, labels, where, self.scope, over)

    def quantile(self, q, labels="", where="", over=RATE):
        classic = self.part("_bucket", ", ".join(part for part in (labels, "le") if part), where, over)
        return f"(histogram_quantile({q}, {self.native(labels, where, over)}) or histogram_quantile({q}, {classic}))"

    def count(self, labels="", where="", over=RATE):
        """How many per second."""
        return f"(histogram_count({self.native(labels, where, over)}) or {self.part('_count', labels, where, over)})"

    def sum(self, labels="", where="", over=RATE):
        """The sum of their values, per second."""
        return f"(histogram_sum({self.native(labels, where, over)}) or {self.part('_sum', labels, where, over)})"

    def mean(self, labels="", where="", over=RATE):
        return f"{self.sum(labels, where, over)} / {self.count(labels, where, over)}"

    def heat(self, where="", over=RATE):
        """What a heatmap draws: the native histogram, or its classic buckets."""
        return f"{self.native('', where, over)} or {self.part('_bucket', 'le', where, over)}"


def allowed_share():
    """By the label `budget`, the share of requests that may take longer, as a vector."""
    one = 'label_replace(vector({share}), "budget", "{name}", "", "")'
    return "(" + " or ".join(one.format(share=share, name=name) for name, share in BUDGETS.items()) + ")"


def over_budget(over, group="route", scope=SERIES):
    """The share of requests that took longer than a budget of their route, by `group` and budget."""
    exceeded = counter("lapwing_requests_over_budget_total", f"{group}, budget", "", scope, over)
    requests = Histogram("lapwing_request_duration_seconds", scope).count(group, "", over)
    return f"{exceeded} / on ({group}) group_left () {requests}"


def burn_rate(over, group="route", scope=SERIES):
    """How many times faster than allowed the budgets burn."""
    return f"{over_budget(over, group, scope)} / on (budget) group_left () {allowed_share()}"


def share(part, whole, labels):
    """Of each series of `part`, which has these labels beside those of `whole`, the share of the whole."""
    return f"{part} / ignoring ({labels}) group_left () {whole}"
