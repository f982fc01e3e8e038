"""The dashboards of the traffic: overview, stages, work."""

from source.grafana import Dashboard, Query, bars, heatmap, lines, number, table, variable
from source.promql import MODEL, POD, SERIES, Histogram, burn_rate, counter, gauge, share

NAMESPACE = variable("namespace", "Namespace", "label_values(lapwing_build_info, namespace)")
PODS = variable("pod", "Pod", 'label_values(lapwing_build_info{namespace=~"$namespace"}, pod)')
ROUTE = variable("route", "Route", f"label_values(lapwing_requests_total{{{POD}}}, route)")
NAMED_MODEL = variable("model", "Model", f'label_values(lapwing_requests_total{{{POD},route=~"$route"}}, model)')
BASE = [NAMESPACE, PODS, ROUTE, NAMED_MODEL]

REQUESTS = "lapwing_requests_total"
DURATION = Histogram("lapwing_request_duration_seconds")
STAGE = Histogram("lapwing_stage_duration_seconds")
PER_UNIT = Histogram("lapwing_stage_seconds_per_unit")
CLASSES = Histogram("lapwing_class_duration_seconds")
CALL = Histogram("lapwing_downstream_call_duration_seconds", POD)
HIT = 'result="hit"'
ANSWERED = 'result="answered"'
FORWARD = 'stage="forward"'
ERROR = 'outcome!~"ok|cancelled"'
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def quantiles(histogram, where="", labels="", legend="", exemplars=True):
    """p50, p90 and p99 in one panel."""
    return [Query(histogram.quantile(q, labels, where), f"{name} {legend}".strip(), exemplars) for name, q in QUANTILES]


def coverage(labels="", where=""):
    claimed, window = (counter(f"lapwing_upstream_window_{part}seconds_total", labels, where) for part in ("claimed_", ""))
    return f"{claimed} / {window}"


def overview():
    burns = [(1, "orange"), (6, "red")]
    def part(outcomes):
        where = f'outcome=~"{outcomes}"'
        return Query(f"{counter(REQUESTS, where=where)} / {counter(REQUESTS)}")

    alarm = [(0.01, "orange"), (0.05, "red")]
    at_a_glance = [
        number("Requests", "How many requests end each second?", Query(counter(REQUESTS)), unit="reqps"),
        number("Errors", "What share of them is an error? A client that gives up is none.", Query(f"{counter(REQUESTS, where=ERROR)} / {counter(REQUESTS)}"), unit="percentunit", steps=[(0.01, "orange"), (0.05, "red")]),
        number("p50", "How long does a request in the middle take?", Query(DURATION.quantile(0.5, where=ANSWERED)), unit="s"),
        number("p99", "How long do the slowest take?", Query(DURATION.quantile(0.99, where=ANSWERED)), unit="s"),
        number("In flight", "How many requests are under way now?", Query(gauge("lapwing_requests_in_flight", scope=POD))),
        number("Highest burn rate, 1 h", "Does a latency budget burn faster than it may? 1 uses up exactly the budget.", Query(f"max ({burn_rate('1h')})"), steps=burns),
    ]
    endings = [
        number("Upstream failing", "What share gets an error of the upstream: 5xx, or an error in the body?", part("server_error|body_error"), unit="percentunit", steps=alarm),
        number("Upstream unreachable", "What share reaches no upstream, loses it, or exceeds a time limit?", part("unreachable|broken|timed_out"), unit="percentunit", steps=alarm),
        number("Shed", "What share does Lapwing shed?", part("shed"), unit="percentunit", steps=alarm),
        number("Client errors", "What share is refused as the client's fault: 4xx, 429 among them?", part("client_error|rejected"), unit="percentunit", steps=[(0.5, "orange")]),
        number("Clients leaving", "What share is given up by its client?", part("cancelled"), unit="percentunit", steps=[(0.05, "orange"), (0.2, "red")]),
        lines("Share that does not end well", "Which routes fail, and in which way?", Query(share(counter(REQUESTS, "route, outcome", 'outcome!="ok"'), counter(REQUESTS, "route"), "outcome"), "{{route}} {{outcome}}"), unit="percentunit", width=24),
    ]
    traffic = [
        lines("Requests by route", "Which routes have how much traffic?", Query(counter(REQUESTS, "route"), "{{route}}"), unit="reqps", stacked="normal"),
        lines("Errors by outcome", "What kinds of errors are there, and since when?", Query(counter(REQUESTS, "outcome", ERROR), "{{outcome}}"), unit="reqps"),
        lines("Requests by model", "Which models have how much traffic?", Query(counter(REQUESTS, "model"), "{{model}}"), unit="reqps", stacked="normal"),
    ]
    duration = [
        lines("Duration", "How long do answered requests take? A dot is a request: its link opens the trace.", *quantiles(DURATION, ANSWERED), unit="s"),
        heatmap("Where durations lie", "Is there one kind of request or are there several, and does that change?", DURATION.heat(ANSWERED)),
        lines("p99 by route", "Which routes are slow?", Query(DURATION.quantile(0.99, "route", ANSWERED), "{{route}}", True), unit="s"),
    ]
    budget = [
        lines("Budget burn rate, 1 h", "How many times faster than allowed does each latency budget burn, over an hour?", Query(burn_rate("1h"), "{{route}} {{budget}}")),
        lines("Budget burn rate, 5 min", "Does it burn now?", Query(burn_rate("5m"), "{{route}} {{budget}}")),
        table("Latency budgets", "Within what time should that share of each route's requests end?", Query(gauge("lapwing_latency_budget_seconds", "route, budget", scope=POD + ',route=~"$route"', how="max")), unit="s"),
        lines("Time above the budget by bound", "What is to blame for the time that requests take beyond their budget? Seconds of it each second.", Query(counter("lapwing_bound_seconds_total", "bound"), "{{bound}}"), unit="s", stacked="normal", width=12),
        lines("Time above the budget by route", "Which routes have most of that time, explained or not?", Query(counter("lapwing_budget_excess_seconds_total", "route"), "{{route}}"), unit="s", stacked="normal", width=12),
    ]
    within, budgeted = (f"lapwing_{part}_requests_total" for part in ("goodput", "budgeted"))
    units = "lapwing_{}_units_total".format
    goodput = [
        lines("Goodput by route", "Of requests that have a budget each, what share is answered within it, and without an error?", Query(f"{counter(within, 'route')} / {counter(budgeted, 'route')}", "{{route}}"), unit="percentunit"),
        lines("Missed budgets", "What do the others miss: the whole time, the first token, the time per token? Or do they fail, or are given up?", Query(counter("lapwing_budget_missed_requests_total", "missed"), "{{missed}}"), unit="reqps"),
        lines("Share of work within its budget", "And of their work, by how its amount is known?", Query(f"{counter(units('goodput'), 'unit, basis')} / {counter(units('budgeted'), 'unit, basis')}", "{{unit}} {{basis}}"), unit="percentunit"),
    ]
    where = [
        bars("Share of time by stage", "Where does the time of answered requests go?", Query(share(STAGE.sum("stage"), DURATION.sum("", ANSWERED), "stage"), "{{stage}}"), unit="percentunit", width=12),
        bars("Share of time by route", "Which routes take the time?", Query(share(DURATION.sum("route", ANSWERED), DURATION.sum("", ANSWERED), "route"), "{{route}}"), unit="percentunit", width=12),
    ]
    rows = [("At a glance", at_a_glance), ("How requests end", endings), ("Rate and errors", traffic), ("Duration", duration), ("Latency budgets", budget), ("Goodput", goodput), ("Where the time goes", where)]
    return Dashboard("overview", "Overview", "Rate, errors, duration, and how fast latency budgets burn.", BASE, rows)


def stages():
    stage = variable("stage", "Stage", f"label_values(lapwing_stage_source_total{{{SERIES}}}, stage)")
    chosen = 'stage=~"$stage"'
    over_time = [
        lines("Share of time by stage", "Where does the time of answered requests go? The shares add up to all of it.", Query(STAGE.sum("stage", chosen), "{{stage}}"), unit="s", stacked="percent", width=12, height=10),
        lines("Time per request by stage", "How much of each does a mean request have?", Query(share(STAGE.sum("stage", chosen), DURATION.count("", ANSWERED), "stage"), "{{stage}}"), unit="s", stacked="normal", width=12, height=10),
    ]
    name = {"p50": "half of", "p90": "nine in ten of", "p99": "99 in 100 of"}
    percentiles = [
        lines(f"{short} by stage", f"Within what time do {name[short]} the requests that have the stage get through it? A dot is a request: its link opens the trace.", Query(STAGE.quantile(q, "stage", chosen), "{{stage}}", True), unit="s")
        for short, q in QUANTILES
    ]
    spread = [
        heatmap("Where durations of the chosen stages lie", "Choose a stage: has it one kind of duration or several?", STAGE.heat(chosen), width=12),
        heatmap("Where durations of requests lie", "And what becomes of it in the whole request?", DURATION.heat(ANSWERED), width=12),
    ]
    trust = [
        lines("Coverage by route", "What share of the upstream's time do reports and spans account for?", Query(coverage("route"), "{{route}}"), unit="percentunit"),
        lines("Source of each stage", "Who says how long the stages took: the proxy's clock, the response, or spans?", Query(counter("lapwing_stage_source_total", "stage, source", chosen), "{{stage}}: {{source}}"), unit="reqps"),
        lines("Inferred means", "Where the server reports nothing: how long do queue and forward take, as inferred from work and requests in flight? The bounds are those of their 95 % intervals.", Query(f"{gauge('lapwing_inferred_stage_seconds', 'model, stage, estimate')} / on (model) group_left () {gauge('lapwing_inferred_requests', 'model')}", "{{model}} {{stage}} {{estimate}}"), unit="s"),
        lines("Polled means", "How long do stages take by the server's own statistics? A mean of many requests, beside the stages of single ones.", Query(f"{counter('lapwing_polled_stage_seconds_total', 'model, stage, phase', scope=MODEL)} / {counter('lapwing_polled_requests_total', 'model, stage, phase', scope=MODEL)}", "{{model}} {{stage}} {{phase}}"), unit="s"),
    ]
    calls = [
        lines("Calls of the server", "What does the server itself call through Lapwing?", Query(counter("lapwing_downstream_calls_total", "downstream, name", scope=POD), "{{downstream}} {{name}}"), unit="reqps"),
        lines("Calls that fail", "Which calls get an error, or lose their connection? Which connections are refused?", Query(counter("lapwing_downstream_calls_total", "downstream, result", 'result!="answered"', POD), "{{downstream}} {{result}}"), Query(counter("lapwing_downstream_connects_failed_total", "downstream", scope=POD), "{{downstream}} cannot be reached"), unit="reqps"),
        lines("What a call takes, p99", "How slow is a store?", Query(CALL.quantile(0.99, "downstream"), "{{downstream}}"), unit="s", logarithmic=True),
        lines("Found", "What share of what is looked up is there?", Query(f"{counter('lapwing_downstream_lookups_total', 'downstream', HIT, POD)} / {counter('lapwing_downstream_lookups_total', 'downstream', scope=POD)}", "{{downstream}}"), unit="percentunit"),
        lines("Waiting for stores, by request", "How much of the time is a known request's? trace and alone are; among is not, because several were in flight.", Query(counter("lapwing_downstream_wait_seconds_total", "downstream, join", scope=POD), "{{downstream}} {{join}}"), unit="s", stacked="normal"),
        lines("Bytes and keys", "How much is asked and got?", Query(counter("lapwing_downstream_bytes_total", "downstream, direction", scope=POD), "{{downstream}} {{direction}} bytes"), Query(counter("lapwing_downstream_keys_total", "downstream", scope=POD), "{{downstream}} keys"), logarithmic=True),
    ]
    rows = [("Where the time goes", over_time), ("Percentiles", percentiles), ("Distribution", spread), ("Who says so", trust), ("Downstreams", calls)]
    return Dashboard("stages", "Stages", "Where the time of requests goes, stage by stage, and who says so.", [*BASE, stage], rows)


def work():
    per_unit = [
        lines("Time per unit, p50", "How long does a row, a token, a byte take in each stage?", Query(PER_UNIT.quantile(0.5, "stage, unit"), "{{stage}} per {{unit}}"), unit="s", logarithmic=True),
        lines("Time per unit, p99", "And where is a unit expensive?", Query(PER_UNIT.quantile(0.99, "stage, unit"), "{{stage}} per {{unit}}"), unit="s", logarithmic=True),
        heatmap("Forward per unit", "Does a unit cost the same in every request?", PER_UNIT.heat(FORWARD), exemplars=False),
        lines("Work", "How much work do answered requests ask for, each second?", Query(counter("lapwing_work_units_total", "unit"), "{{unit}}"), logarithmic=True),
        lines("Units in a second of forward", "How fast is the model while it runs?", Query(f"{counter('lapwing_stage_units_total', 'model, unit', FORWARD)} / on (model) group_left () {STAGE.sum('model', FORWARD)}", "{{model}} {{unit}}"), logarithmic=True),
        lines("Work by model", "Which models do the work?", Query(counter("lapwing_work_units_total", "model, unit"), "{{model}} {{unit}}"), logarithmic=True),
    ]
    classes = [
        lines("p50 by cost class", "How long does a request take that asks for so much work? A class begins at its amount and ends at twice that.", Query(CLASSES.quantile(0.5, "class, unit"), "from {{class}} {{unit}}"), unit="s", logarithmic=True),
        lines("p99 by cost class", "Are small requests slow because large ones are before them?", Query(CLASSES.quantile(0.99, "class, unit"), "from {{class}} {{unit}}", True), unit="s", logarithmic=True),
        lines("Requests by cost class", "How large are requests, and does the mix change?", Query(CLASSES.count("class, unit"), "from {{class}} {{unit}}"), unit="reqps", stacked="normal"),
        bars("Share of time by cost class", "Which sizes of requests take the time?", Query(share(CLASSES.sum("class, unit"), CLASSES.sum(), "class, unit"), "from {{class}} {{unit}}"), unit="percentunit"),
        heatmap("Where durations of classes lie", "Every request with known work, by its duration.", CLASSES.heat()),
        lines("Mean by cost class and route", "Which route makes a class slow?", Query(CLASSES.mean("route, class, unit"), "{{route}} from {{class}} {{unit}}"), unit="s", logarithmic=True),
    ]
    batches = [
        lines("Batch size", "How many rows does the server run at once?", Query(gauge("lapwing_batch_size", "model", how="avg"), "{{model}}")),
        lines("Padding", "What share of what it runs is padding?", Query(gauge("lapwing_batch_padding_ratio", "model", how="avg"), "{{model}}"), unit="percentunit"),
        lines("In the upstream", "How many requests run and wait in the server, by its own count?", Query(gauge("lapwing_upstream_requests_running", "pod, model", how="max"), "{{pod}} {{model}} running"), Query(gauge("lapwing_upstream_requests_waiting", "pod, model", how="max"), "{{pod}} {{model}} waiting")),
    ]
    def held(name, labels, legend):
        return Query(gauge(name, labels, scope=POD), legend)

    dispatch = [
        lines("Waiting by class", "How many requests wait in front of the upstreams?", held("lapwing_dispatch_waiting", "class", "{{class}}"), stacked="normal"),
        lines("Work that waits, by class", "How long would one slot work on them?", held("lapwing_dispatch_waiting_work_seconds", "class", "{{class}}"), unit="s", stacked="normal"),
        lines("Requests by result", "What becomes of requests that ask to be sent, and of those that wait and do not get their turn?", Query(counter("lapwing_dispatch_requests_total", "result", scope=POD), "{{result}}"), Query(counter("lapwing_dispatch_overdue_total", "reason", scope=POD), "overdue: {{reason}}"), Query(counter("lapwing_dispatch_ejections_total", scope=POD), "upstreams left alone"), unit="reqps"),
        lines("Requests by class", "Which classes wait, and which are refused or wait in vain?", Query(counter("lapwing_dispatch_class_requests_total", "class, result", scope=POD), "{{class}}: {{result}}"), unit="reqps"),
        lines("Wait by class, p50 and p99", "How long do those wait that are not sent at once?", *[Query(Histogram("lapwing_dispatch_wait_seconds", POD).quantile(q, "class"), f"{{{{class}}}} {name}") for name, q in (("p50", 0.5), ("p99", 0.99))], unit="s"),
        lines("Slots", "How many requests does each upstream work on at once? In how many pods is the queue on?", held("lapwing_dispatch_slots", "pod, upstream", "{{pod}} {{upstream}}"), held("lapwing_dispatch_on", "", "pods with the queue on")),
        lines("In front of whom nothing waits", "Why not? And which upstreams are left alone, because they fail or stand still? In so many pods.", held("lapwing_dispatch_window_refused", "upstream, reason", "{{upstream}}: {{reason}}"), held("lapwing_dispatch_ejected", "upstream", "{{upstream}}: left alone"), held("lapwing_dispatch_stalled", "upstream", "{{upstream}}: stands still")),
        lines("Second requests", "What became of requests that took long?", Query(counter("lapwing_hedges_total", "result", scope=POD), "{{result}}"), unit="reqps"),
        lines("Time of second requests", "Which share of the time do they take?", Query(f"{counter('lapwing_hedge_service_seconds_total', scope=POD)} / {counter('lapwing_dispatch_service_seconds_total', scope=POD)}", "share"), unit="percentunit"),
        lines("Speed by upstream", "Is one slower than the others? 1 is the mean of all.", Query(gauge("lapwing_dispatch_speed_ratio", "upstream", scope=POD, how="avg"), "{{upstream}}")),
    ]
    hits = counter("lapwing_cache_requests_total", where='result=~"l1|l2|coalesced"', scope=POD)
    cache = [
        lines("Answered from the cache", "What share of the requests that it might answer?", Query(f"{hits} / {counter('lapwing_cache_requests_total', scope=POD)}", "share"), unit="percentunit"),
        lines("Requests that it might answer", "What becomes of them?", Query(counter("lapwing_cache_requests_total", "result", scope=POD), "{{result}}"), unit="reqps", stacked="normal"),
        lines("What stays out", "Why are requests not answered from it, or their answers not kept?", Query(counter("lapwing_cache_refused_total", "reason", scope=POD), "{{reason}}"), unit="reqps"),
        lines("Time saved", "How much of the upstream's time do answers save that are given again, each second?", Query(counter("lapwing_cache_saved_seconds_total", scope=POD), "saved"), unit="s"),
        lines("Same answer to the same question", "Does the upstream say the same? And how many routes and models are trusted?", Query(counter("lapwing_cache_compared_total", "result", scope=POD), "{{result}}, each second"), held("lapwing_cache_series", "state", "{{state}}")),
        lines("Memory for answers", "How much do they take?", held("lapwing_cache_bytes", "pod", "{{pod}}"), unit="bytes"),
        lines("Answers", "How many are kept, and how many come anew? How many requests wait for the answer to the same one?", held("lapwing_cache_entries", "pod", "{{pod}} kept"), Query(counter("lapwing_cache_stored_total", "pod", scope=POD), "{{pod}} stored, each second"), held("lapwing_cache_waiting", "role", "{{role}}")),
    ]
    rows = [("Per unit", per_unit), ("Cost classes", classes), ("Batches", batches), ("Dispatch", dispatch), ("Cache", cache)]
    return Dashboard("work", "Work", "What a unit of work costs, and what requests of each size cost.", BASE, rows)
