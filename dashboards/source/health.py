"""The dashboard of Lapwing itself: what it costs, what it drops, what it covers."""

from source.grafana import Dashboard, Query, lines, number, table
from source.promql import POD, counter, gauge
from source.traffic import BASE, STAGE, coverage


def rates(name, label="", prefix=""):
    """A counter of Lapwing itself, per second."""
    return Query(counter(name, label, scope=POD), f"{prefix} {{{{{label}}}}}".strip() if label else prefix)


def level(name, legend, how="sum"):
    return Query(gauge(name, "pod", scope=POD, how=how), f"{{{{pod}}}} {legend}".strip())


def lapwing():
    dropped = "lapwing_exchanges_dropped_total"
    at_a_glance = [
        number("Pods", "How many Lapwings are there?", Query(f"count (lapwing_build_info{{{POD}}})")),
        number("Coverage", "What share of the upstreams' time is accounted for?", Query(coverage()), unit="percentunit"),
        number("Dropped", "How many requests are served but not profiled, each second?", rates(dropped), unit="reqps", steps=[(0.001, "red")]),
        number("Memory, largest", "How much does a Lapwing need?", Query(gauge("process_resident_memory_bytes", scope=POD, how="max")), unit="bytes"),
        number("Series, fullest", "How near is a pod to its limit of series?", Query(f"max (lapwing_series{{{POD}}} / lapwing_series_limit{{{POD}}})"), unit="percentunit", steps=[(0.8, "orange"), (1, "red")]),
        number("Youngest", "Since when has no pod been restarted?", Query(gauge("lapwing_uptime_seconds", scope=POD, how="min")), unit="s"),
    ]
    cost = [
        lines("Validation, p50 and p99", "How long does Lapwing itself hold a request before it goes to the upstream?", Query(STAGE.quantile(0.5, "", 'stage="validation"'), "p50"), Query(STAGE.quantile(0.99, "", 'stage="validation"'), "p99"), unit="s"),
        lines("Memory", "Does it grow?", level("process_resident_memory_bytes", ""), unit="bytes"),
        lines("In flight and queued", "Does the aggregator keep up?", level("lapwing_requests_in_flight", "in flight"), level("lapwing_queue_depth", "queued"), level("lapwing_pending_exchanges", "wait for spans"), level("lapwing_orphan_spans", "spans held"), level("lapwing_client_connections_waiting", "connections without a descriptor")),
        table("Versions", "Which versions run where?", Query(gauge("lapwing_build_info", "namespace, pod, version", scope=POD)), hidden=["Value"]),
        lines("Connections", "How many connections are opened each second?", rates("lapwing_client_connections_total", "", "from clients"), rates("lapwing_upstream_connections_total", "", "to upstreams"), unit="ops"),
        lines("Heads acknowledged at once", "How many messages came in two parts and did not wait for it?", rates("lapwing_quick_acks_total", "side"), unit="ops"),
        lines("Upstreams by server", "Which model servers are recognised?", Query(gauge("lapwing_upstream_info", "server", scope=POD), "{{server}}")),
    ]
    drops = [
        lines("Served but not profiled", "Is the profile complete?", rates(dropped, "reason"), rates("lapwing_observer_panics_total", "", "observer panicked"), unit="reqps"),
        lines("Bounds that were reached", "What was counted elsewhere, because a table was full?", rates("lapwing_series_overflowed_total", "", "series"), rates("lapwing_series_retired_total", "", "retired series"), rates("lapwing_names_overflowed_total", "table", "names:"), rates("lapwing_names_unproven_total", "table", "unproven:"), rates("lapwing_ledger_overflowed_total", "", "ledgers"), rates("lapwing_pending_evicted_total", "", "pending"), unit="ops"),
        lines("Series", "How many are there, and how many may there be?", level("lapwing_series", "in use"), level("lapwing_series_limit", "limit")),
        lines("Values left out or clipped", "Which figures are less exact than they could be?", rates("lapwing_values_clipped_total", "", "values at a bound"), rates("lapwing_work_mixed_total", "", "work in another unit"), rates("lapwing_prompts_not_tokenized_total", "reason", "not tokenized:"), rates("lapwing_bodies_unread_total", "reason", "bodies not read:"), rates("lapwing_reports_malformed_total", "", "malformed reports"), unit="ops"),
        lines("Connections that ended in an error", "Do clients misbehave?", rates("lapwing_client_connections_failed_total", "reason"), rates("lapwing_slow_uploads_total", "reason", "slow upload:"), rates("lapwing_accepts_failed_total", "", "not accepted"), rates("lapwing_client_connections_waited_total", "", "waited for a descriptor"), unit="ops"),
        lines("Time limits that were reached", "Does Lapwing cut what clients would have waited for?", rates("lapwing_time_limits_reached_total", "limit"), unit="ops"),
        lines("Admin address", "Are scrapes and reads refused or ended?", rates("lapwing_scrapes_refused_total", "", "refused"), rates("lapwing_control_connections_closed_total", "reason"), rates("lapwing_access_log_lines_dropped_total", "reason", "access log:"), unit="ops"),
    ]
    attribution = [
        lines("Coverage by pod", "Has an upstream stopped to report?", Query(coverage("pod"), "{{pod}}"), unit="percentunit"),
        lines("Spans", "What becomes of the spans that come?", rates("lapwing_spans_total", "result"), rates("lapwing_spans_invalid_total", "", "invalid"), rates("lapwing_spans_rejected_total", "", "rejected"), rates("lapwing_spans_skipped_total", "", "skipped"), unit="ops"),
        lines("Reports that did not fit", "Do the upstream's clocks and reports agree with the proxy's?", rates("lapwing_reports_clipped_total", "cause"), unit="ops"),
        lines("Incomplete and mended", "Do spans come too late or not at all?", Query(counter("lapwing_exchanges_incomplete_total"), "incomplete"), Query(counter("lapwing_exchanges_mended_total"), "mended"), unit="reqps"),
        lines("Polls", "Can the server's own statistics be read?", rates("lapwing_polls_total", "result"), unit="ops"),
        lines("Spans passed on", "Does the collector behind Lapwing get them?", rates("lapwing_otlp_forwarded_total", "", "passed on"), rates("lapwing_otlp_forward_lost_total", "", "lost"), rates("lapwing_otlp_malformed_total", "", "refused: malformed"), rates("lapwing_otlp_busy_total", "", "refused: busy"), unit="ops"),
        lines("Exports by result", "Are exports refused, and why?", rates("lapwing_otlp_requests_total", "result"), unit="ops"),
        lines("Own telemetry", "Does the collector get what Lapwing sends of its own?", rates("lapwing_telemetry_metrics_requests_total", "result", "metrics:"), rates("lapwing_telemetry_traces_total", "result", "traces:"), rates("lapwing_telemetry_rejected_total", "signal", "refused:"), unit="ops"),
    ]
    rows = [("At a glance", at_a_glance), ("Cost", cost), ("Drops", drops), ("Coverage", attribution)]
    return Dashboard("lapwing", "Lapwing itself", "What the profiler costs, what it drops, and what it covers.", BASE, rows)
