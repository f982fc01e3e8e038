"""The dashboards that compare: shadow targets and A/B; the engine and computational debt."""

from source.grafana import Dashboard, Query, bars, heatmap, lines, number, table, variable
from source.promql import MODEL, POD, SHADOWED, TARGET, Histogram, counter, gauge, share
from source.traffic import BASE, QUANTILES, STAGE, quantiles

RATIO = Histogram("lapwing_shadow_latency_ratio", SHADOWED)
COPIES = Histogram("lapwing_shadow_duration_seconds", SHADOWED)
COMPARED = "lapwing_shadow_compared_total"
MISMATCHES = "lapwing_shadow_mismatches_total"
SHARE = 'cause="share"'
WHOLE = 'stage="total"'


def shadow():
    target = variable("target", "Target", f"label_values(lapwing_shadow_requests_total{{{POD}}}, target)")
    differing = share(counter(MISMATCHES, "target, kind", SHARE, TARGET), counter(COMPARED, "target", SHARE, TARGET), "kind")
    at_a_glance = [
        number("Copied", "How many requests are copied each second?", Query(counter("lapwing_shadow_sampled_requests_total", scope=POD)), unit="reqps"),
        number("Compared", "How many pairs of outputs are compared each second?", Query(counter(COMPARED, scope=TARGET)), unit="reqps"),
        number("Differing outputs", "In what share of pairs do outputs differ, beyond what the upstream's own answers do?", Query(f"max ({differing})"), unit="percentunit", steps=[(0.001, "orange"), (0.01, "red")]),
        number("Time of the copy over its request, p50", "Is the target faster (below 1) or slower?", Query(RATIO.quantile(0.5, "", WHOLE)), steps=[(1.05, "orange"), (1.5, "red")]),
        number("… p99", "And in the worst pairs?", Query(RATIO.quantile(0.99, "", WHOLE))),
        number("Dropped copies", "How many copies are not sent or not compared, each second?", Query(counter("lapwing_shadow_dropped_total", scope=POD)), unit="reqps"),
    ]
    latency = [
        lines("Time of the copy over its request", "How much faster or slower is the target, pair by pair?", *[Query(RATIO.quantile(q, "target", WHOLE), f"{{{{target}}}} {name}") for name, q in QUANTILES]),
        lines("The same by stage, p50", "Which stage makes the difference?", Query(RATIO.quantile(0.5, "target, stage"), "{{target}} {{stage}}")),
        lines("The same by model, p50", "For which models does it hold?", Query(RATIO.quantile(0.5, "target, route, model", WHOLE), "{{target}} {{route}} {{model}}")),
        lines("Copies by stage, p50", "How long do the stages of the copies take?", Query(COPIES.quantile(0.5, "target, stage"), "{{target}} {{stage}}"), unit="s"),
        lines("Requests by stage, p50", "And those of the requests, copied or not?", Query(STAGE.quantile(0.5, "stage"), "{{stage}}", True), unit="s"),
        heatmap("Where ratios lie", "Is it the same for every pair? (Classic buckets only.)", RATIO.heat(WHOLE), unit="short", exemplars=False),
    ]
    outputs = [
        lines("Differing outputs by kind", "What do they differ in? One pair may have several kinds.", Query(differing, "{{target}} {{kind}}"), unit="percentunit"),
        lines("Compared", "How many pairs are the shares from? Quotas take rare classes more often than the traffic has them.", Query(counter(COMPARED, "target, cause", scope=TARGET), "{{target}} by {{cause}}"), unit="reqps"),
        lines("Not judged, by reason", "Of how many pairs cannot be said whether they agree, and why?", Query(counter("lapwing_shadow_unjudged_total", "target, reason", scope=TARGET), "{{target}} {{reason}}"), unit="reqps"),
        lines("Differences by cause", "Do requests that a quota took differ more?", Query(counter(MISMATCHES, "target, cause", scope=TARGET), "{{target}} by {{cause}}"), unit="reqps"),
    ]
    health = [
        lines("Copies by result", "Does the target answer?", Query(counter("lapwing_shadow_requests_total", "target, result", scope=TARGET), "{{target}} {{result}}"), unit="reqps"),
        lines("Dropped by reason", "Why are copies not sent or not compared?", Query(counter("lapwing_shadow_dropped_total", "target, reason", scope=POD), "{{target}} {{reason}}"), unit="reqps"),
        lines("Quotas", "What became of requests on routes with a quota?", Query(counter("lapwing_shadow_quota_requests_total", "route, result", scope=POD + ',route=~"$route"'), "{{route}} {{result}}"), unit="reqps"),
    ]
    rows = [("At a glance", at_a_glance), ("Latency", latency), ("Outputs", outputs), ("Health of the comparison", health)]
    return Dashboard("shadow", "Shadow and A/B", "Is the other one faster, and is it the same?", [*BASE, target], rows)


def engine():
    debt, debt_seconds = Histogram("lapwing_computational_debt_ratio"), "lapwing_computational_debt_seconds_total"
    requests, tokens = "lapwing_engine_requests_total", "lapwing_engine_tokens_total"
    stage, calls, executed = (Histogram(f"lapwing_engine_{name}", MODEL) for name in ("stage_duration_seconds", "batch_calls", "batch_tokens"))
    forward = STAGE.sum("", 'stage="forward"')
    useful, ran = (counter(tokens, "model", f'kind="{kind}"', MODEL) for kind in ("useful", "executed"))
    computational_debt = [
        number("Debt, p50", "How many times more than the optimum does the forward pass take? 1 is the optimum.", Query(debt.quantile(0.5)), width=6, steps=[(2, "orange"), (5, "red")]),
        number("Debt, p90", "And for one request in ten?", Query(debt.quantile(0.9)), width=6),
        number("Servers busy for nothing", "How many seconds of forward above the optimum come each second?", Query(counter(debt_seconds)), width=6),
        number("Share of forward", "What share of the forward time is above the optimum?", Query(f"{counter(debt_seconds)} / {forward}"), unit="percentunit", width=6),
        lines("Debt by model", "Which models have a debt, and relative to what?", Query(debt.quantile(0.5, "model, optimum"), "{{model}}: {{optimum}}", True)),
        lines("Debt by cost class", "Do small requests pay for an overhead that large ones hide?", Query(debt.quantile(0.5, "class, unit"), "from {{class}} {{unit}}")),
        lines("Seconds above the optimum", "Where would an optimisation save most?", Query(counter(debt_seconds, "route, model"), "{{route}} {{model}}"), unit="s", stacked="normal"),
        heatmap("Where debts lie", "Do all requests have the same debt?", debt.heat(), unit="short", width=24),
    ]
    served = [
        lines("Requests of the engine", "How many calls does the engine answer, and how do the others end?", Query(counter(requests, "model, outcome", scope=MODEL), "{{model}} {{outcome}}"), unit="reqps"),
        lines("Time by stage", "Where does the time of its requests go?", Query(stage.sum("stage"), "{{stage}}"), unit="s", stacked="percent"),
        lines("p99 by stage", "How long do the stages take?", Query(stage.quantile(0.99, "model, stage"), "{{model}} {{stage}}"), unit="s"),
        lines("Forward", "How long does the model run?", *quantiles(stage, 'stage="forward"', exemplars=False), unit="s"),
        lines("Calls in a batch", "With how many others does a request run?", Query(calls.mean("model"), "{{model}} mean"), Query(calls.quantile(0.9, "model"), "{{model}} p90")),
        lines("Tokens in a batch", "How large are batches, in tokens or rows?", Query(executed.mean("model"), "{{model}} mean"), Query(executed.quantile(0.9, "model"), "{{model}} p90")),
        lines("Padding", "What share of the executed tokens is padding?", Query(f"1 - {useful} / {ran}", "{{model}}"), unit="percentunit"),
        lines("Useful tokens", "How much does it do each second?", Query(useful, "{{model}}")),
        lines("In flight", "How many of its requests are read, wait or run?", Query(gauge("lapwing_engine_requests_in_flight", "model", scope=MODEL), "{{model}}")),
        bars("Ready", "In how many pods is each model warm?", Query(gauge("lapwing_engine_ready", "model, version", scope=MODEL), "{{model}}@{{version}}")),
        table("Where models run", "On what device, and in what numbers?", Query(gauge("lapwing_engine_device_info", "model, version, device, name, precision", scope=MODEL)), hidden=["Value"]),
        lines("Memory of request bodies", "How near is it to engine.body_budget?", Query(gauge("lapwing_engine_body_bytes", "pod", scope=POD), "{{pod}}"), unit="bytes"),
        lines("Refused", "Which bounds are exceeded?", Query(counter("lapwing_engine_bounds_exceeded_total", "bound", scope=POD), "{{bound}}"), unit="reqps"),
        lines("Put on the processor", "How often did a model run on the processor though a GPU was looked for?", Query(gauge("lapwing_engine_fallback_total", "model, reason", scope=MODEL), "{{model}} {{reason}}")),
    ]
    rows = [("Computational debt", computational_debt), ("The engine", served)]
    return Dashboard("engine", "Engine and debt", "What models cost over what they must, and how the engine serves its own.", BASE, rows)
