"""Recording and alerting rules. dashboards/prometheus/lapwing.{hours,days}_test.yaml have a case for each."""

from dataclasses import dataclass

from source.promql import Histogram, allowed_share, counter, over_budget, share

BURN_WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
GROUP = "namespace, route, model"
NO_SCOPE = ""


@dataclass
class Rule:
    """A rule that records; with `summary` one that alerts, once it has held for as long as `lasts`."""

    name: str
    expr: str
    lasts: str = ""
    severity: str = ""
    summary: str = ""
    description: str = ""

    def lines(self):
        yield f"      - {'alert' if self.summary else 'record'}: {self.name}"
        yield "        expr: |-"
        yield from (f"          {line}" for line in self.expr.splitlines())
        if self.lasts:
            yield f"        for: {self.lasts}"
        if self.summary:
            yield "        labels:"
            yield f"          severity: {self.severity}"
            yield "        annotations:"
            yield f"          summary: '{self.summary}'"
            yield f"          description: '{self.description}'"


def burn(window):
    return f"lapwing:latency_budget_burn:rate{window}"


def burning(factor, long, short):
    return f"({burn(long)} > {factor} and {burn(short)} > {factor})"


def claimed_share():
    claimed, window = (counter(f"lapwing_upstream_window_{part}seconds_total", GROUP, "", NO_SCOPE, "5m") for part in ("claimed_", ""))
    return f"{claimed}\n  / {window}"


def differing():
    pairs = 'cause="share"'
    mismatches = counter("lapwing_shadow_mismatches_total", "namespace, target, kind", pairs, NO_SCOPE, "30m")
    compared = counter("lapwing_shadow_compared_total", "namespace, target", pairs, NO_SCOPE, "30m")
    return f"max by (namespace, target) (\n  {share(mismatches, compared, 'kind')}\n)"


def ended(outcomes, window="5m"):
    """The share of a route's requests that end so."""
    some, all_of = (counter("lapwing_requests_total", GROUP, where, NO_SCOPE, window) for where in (f'outcome=~"{outcomes}"', ""))
    return f"{some}\n  / {all_of}"


def several(outcomes, window="5m"):
    """Not of a single request: a lower bound for the interval of a share."""
    return f'sum by ({GROUP}) (increase(lapwing_requests_total{{outcome=~"{outcomes}"}}[{window}])) >= 3'


REQUESTS = counter("lapwing_requests_total", "namespace, pod", "", NO_SCOPE, "5m")
OVER = "lapwing:requests_over_budget:ratio_rate{window}"
COVERAGE = "lapwing:attribution_coverage:ratio_rate5m"
DIFFERING = "lapwing:shadow_mismatches:ratio_rate30m"
DEBT = "lapwing:computational_debt:p50_rate1h"

RECORDS = [
    *(Rule(OVER.format(window=window), over_budget(window, "namespace, route", NO_SCOPE)) for window in BURN_WINDOWS),
    *(Rule(burn(window), f"{OVER.format(window=window)}\n  / on (budget) group_left () {allowed_share()}") for window in BURN_WINDOWS),
    Rule(COVERAGE, claimed_share()),
    Rule(DIFFERING, differing()),
    Rule(DEBT, Histogram("lapwing_computational_debt_ratio", NO_SCOPE).quantile(0.5, f"{GROUP}, optimum", "", "1h")),
]
ROUTE = "{{ $labels.route }}"
MODEL_OF = f"{ROUTE}, model {{{{ $labels.model }}}}"
POD = "{{ $labels.namespace }}/{{ $labels.pod }}"
VALUE = "{{ $value | humanize }}"
PERCENT = "{{ $value | humanizePercentage }}"
FAILS, UNREACHABLE, SHED, CLIENTS = "server_error|body_error", "unreachable|broken|timed_out", "shed", "client_error|rejected"
DIAGNOSE = "`lapwing diagnose` has the interval of the share and what to do first; the dashboard Lapwing / Overview shows since when."
ALERTS = [
    Rule(
        "LapwingUpstreamUnreachable",
        f"{ended(UNREACHABLE)} > 0.05\n  and {several(UNREACHABLE)}",
        "1m",
        "page",
        f"{MODEL_OF}: {PERCENT} of the requests reach no upstream, or lose it amid the answer, or exceed a time limit",
        f"The upstream is down, restarts, or is stuck; its clients get 502 and 504. {DIAGNOSE}",
    ),
    Rule(
        "LapwingUpstreamFails",
        f"{ended(FAILS)} > 0.05\n  and {several(FAILS)}",
        "2m",
        "page",
        f"{MODEL_OF}: the upstream answers {PERCENT} of the requests with an error of its own",
        f"5xx, a gRPC status that blames it, or an error in the body of a 200. Its own log has the reason. {DIAGNOSE}",
    ),
    Rule(
        "LapwingSheds",
        f"{ended(SHED)} > 0.01\n  and {several(SHED)}",
        "5m",
        "ticket",
        f"{MODEL_OF}: Lapwing sheds {PERCENT} of the requests",
        f"More are in flight than proxy.max_in_flight allows. Raise it if the upstream has room, else add a replica. {DIAGNOSE}",
    ),
    Rule(
        "LapwingClientsLeave",
        f"{ended('cancelled', '10m')} > 0.2\n  and {several('cancelled', '10m')}",
        "10m",
        "ticket",
        f"{MODEL_OF}: {PERCENT} of the requests are given up by their clients",
        f"Where most leave after the same time, their time limit is shorter than the answer takes. {DIAGNOSE}",
    ),
    Rule(
        "LapwingClientErrors",
        f"{ended(CLIENTS, '15m')} > 0.5\n  and {several(CLIENTS, '15m')}",
        "15m",
        "ticket",
        f"{MODEL_OF}: {PERCENT} of the requests are refused as the fault of the client",
        f"4xx, 429 among them: credentials that ran out, a model that was renamed, a rate limit of the upstream. {DIAGNOSE}",
    ),
    Rule(
        "LapwingLatencyBudgetBurnsFast",
        f"{burning(14.4, '1h', '5m')}\n  or {burning(6, '6h', '30m')}",
        severity="page",
        summary=f"{ROUTE}: the latency budget {{{{ $labels.budget }}}} burns {VALUE} times too fast",
        description="At this rate the budget of 30 days is used up within days: 2 % of it in an hour, or 5 % in six. The dashboard Lapwing / Stages shows which stage is slow.",
    ),
    Rule(
        "LapwingLatencyBudgetBurnsSlowly",
        f"{burning(3, '1d', '2h')}\n  or {burning(1, '3d', '6h')}",
        severity="ticket",
        summary=f"{ROUTE}: the latency budget {{{{ $labels.budget }}}} burns {VALUE} times too fast",
        description="A tenth of the budget of 30 days went in one day or three.",
    ),
    Rule(
        "LapwingCoverageLost",
        f"{COVERAGE} < 0.5 * avg_over_time({COVERAGE}[1d] offset 1h)\n  and avg_over_time({COVERAGE}[1d] offset 1h) > 0.2",
        "15m",
        "ticket",
        f"{MODEL_OF}: only {PERCENT} of the upstream time is accounted for, less than half of what was",
        "The server reports less than the day before. Look whether it was deployed without its reporting, or its spans are lost (Lapwing / Lapwing itself, Coverage).",
    ),
    Rule(
        "LapwingProfileIncomplete",
        f"{counter('lapwing_exchanges_dropped_total', 'namespace, pod', '', NO_SCOPE, '5m')}\n  / {REQUESTS} > 0.01",
        "10m",
        "ticket",
        f"{POD}: {PERCENT} of the requests are served but not profiled",
        "The aggregator does not keep up, or the observer panicked: lapwing_exchanges_dropped_total has the reason.",
    ),
    Rule(
        "LapwingSpansLost",
        counter("lapwing_spans_total", "namespace, pod", 'result=~"late|shed"', NO_SCOPE, "10m")
        + "\n  / "
        + counter("lapwing_spans_total", "namespace, pod", "", NO_SCOPE, "10m")
        + " > 0.05",
        "15m",
        "ticket",
        f"{POD}: {PERCENT} of the spans come too late or find no room",
        "Stages of these requests are unattributed. Let the exporter send sooner, or make attribution.grace longer.",
    ),
    Rule(
        "LapwingSpansUnmatched",
        counter("lapwing_spans_total", "namespace, pod", 'result="unmatched"', NO_SCOPE, "15m")
        + "\n  / "
        + counter("lapwing_spans_total", "namespace, pod", "", NO_SCOPE, "15m")
        + " > 0.5",
        "15m",
        "ticket",
        f"{POD}: {PERCENT} of the spans belong to no request",
        "The server continues another trace than the traceparent that it gets: OTEL_PROPAGATORS=tracecontext,baggage. Its stages are unknown until then.",
    ),
    Rule(
        "LapwingExportsRefused",
        'sum by (namespace, pod, result) (increase(lapwing_otlp_requests_total{result!="taken"}[15m])) > 5',
        "",
        "ticket",
        f"{POD}: OTLP exports are refused: {{{{ $labels.result }}}}",
        "What they carry is missing, and exporters seldom say so. `lapwing diagnose` names the one change that helps; the log has what the first of them had.",
    ),
    Rule(
        "LapwingSeriesOverflow",
        f"{counter('lapwing_series_overflowed_total', 'namespace, pod', '', NO_SCOPE, '15m')} > 0",
        "15m",
        "ticket",
        f"{POD}: requests are counted as other, because metrics.max_series is reached",
        "Routes or models without bound: name them by rules, or raise metrics.max_series.",
    ),
    Rule(
        "LapwingObserverPanicked",
        "sum by (namespace, pod) (increase(lapwing_observer_panics_total[1h])) > 0",
        "",
        "ticket",
        f"{POD}: the observer panicked; the requests were served",
        "A bug of Lapwing: its log names the place.",
    ),
    Rule(
        "LapwingShadowMismatch",
        f"{DIFFERING} > 0.01\n  and sum by (namespace, target) (increase(lapwing_shadow_compared_total{{cause=\"share\"}}[30m])) >= 100",
        "10m",
        "ticket",
        f"{{{{ $labels.target }}}}: {PERCENT} of the answers differ from those of the upstream",
        "Beyond what answers of the upstream itself differ in, of at least 100 pairs in half an hour. /shadow shows in what.",
    ),
    Rule(
        "LapwingShadowTargetFails",
        counter("lapwing_shadow_requests_total", "namespace, target", 'result="failed"', NO_SCOPE, "10m")
        + "\n  / "
        + counter("lapwing_shadow_requests_total", "namespace, target", "", NO_SCOPE, "10m")
        + " > 0.5",
        "10m",
        "ticket",
        f"{{{{ $labels.target }}}}: {PERCENT} of the copies get no answer",
        "The comparison has too few pairs. Clients do not notice it.",
    ),
    Rule(
        "LapwingComputationalDebtRose",
        f"{DEBT} > 1.5 * avg_over_time({DEBT}[1d] offset 1d)",
        "1h",
        "ticket",
        f"{MODEL_OF}: the forward pass takes {VALUE} times the optimum, half more than a day ago",
        "The same work costs more than before: another device, another precision, smaller batches, or a neighbour.",
    ),
]
GROUPS = {"lapwing-recorded": RECORDS, "lapwing-alerts": ALERTS}


def text():
    found = ["# Written by dashboards/generate.py from dashboards/source/rules.py.", "groups:"]
    for name, rules in GROUPS.items():
        found += [f"  - name: {name}", "    rules:", *(line for rule in rules for line in rule.lines())]
    return "\n".join(found) + "\n"
