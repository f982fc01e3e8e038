//! Every metric family of `/metrics`, defined once: families with their own values here, the profiler's own counters and
//! gauges in the table of [`Counter`]. A test checks docs/METRICS.md against both.

use super::counters::{Counter, CounterKind};

/// The kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; its samples have the suffix `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Sum, count and buckets: classic ones in text, exponential ones (a native histogram) too in protobuf.
    Histogram,
}

impl MetricKind {
    /// The name in `# TYPE` lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The definition of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricFamily {
    /// The name without `_total`; ends in the unit if there is one.
    pub name: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The unit, for `# UNIT`.
    pub unit: Option<&'static str>,
    /// The labels, in order.
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident: $kind:ident $name:literal $unit:expr, $labels:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $id: MetricFamily =
                MetricFamily { name: $name, kind: MetricKind::$kind, unit: $unit, labels: &$labels, help: $help };
        )*
        /// The families of the table above.
        pub const FAMILIES: &[MetricFamily] = &[$($id,)*];
    };
}

families! {
    REQUESTS: Counter "lapwing_requests" None, ["route", "model", "upstream", "outcome"],
        "Requests and streams that ended, each once, by how they ended.";
    REQUEST_DURATION: Histogram "lapwing_request_duration_seconds" Some("seconds"), ["route", "model", "upstream", "result"],
        "From the first byte of a request to the last byte of its response handed to the socket; result is answered, cached (given the answer to another request), cancelled (by the client) or failed (no full answer, or an error inside one).";
    OVER_BUDGET: Counter "lapwing_requests_over_budget" None, ["route", "model", "upstream", "budget"],
        "Requests, however they ended, that took longer than their route's budget of p50, p90, p99 or p999.";
    BUDGET: Gauge "lapwing_latency_budget_seconds" Some("seconds"), ["route", "budget"],
        "Within what time that share of a route's requests should end (metrics.budgets).";
    BUDGETED: Counter "lapwing_budgeted_requests" None, ["route", "model", "upstream"],
        "Requests that had a budget each: stated, of their model or of their route. Absent, as what follows, until there is one.";
    GOODPUT: Counter "lapwing_goodput_requests" None, ["route", "model", "upstream"],
        "Those answered without an error and within it.";
    BUDGET_MISSED: Counter "lapwing_budget_missed_requests" None, ["route", "model", "upstream", "missed"],
        "The others, by every reason: missed is total, first_token, per_token, failed or cancelled.";
    BUDGETED_UNITS: Counter "lapwing_budgeted_units" None, ["route", "model", "upstream", "unit", "basis"],
        "Work of requests that had a budget, by how it is known.";
    GOODPUT_UNITS: Counter "lapwing_goodput_units" None, ["route", "model", "upstream", "unit", "basis"],
        "The part of it within, without an error.";
    BOUND_SECONDS: Counter "lapwing_bound_seconds" Some("seconds"), ["route", "model", "upstream", "bound"],
        "Time above the budget of the route, by what the diagnosis blames for it; bound is compute, feature, queue, network, preprocessing, postprocessing, downstream, proxy, pauses or cold_start, as the latest diagnosis has it. Absent until a request exceeds the budget.";
    BUDGET_EXCESS: Counter "lapwing_budget_excess_seconds" Some("seconds"), ["route", "model", "upstream"],
        "Time above the budget of the route, of all requests that took longer; what no bound explains is in no lapwing_bound_seconds_total.";
    STAGE_DURATION: Histogram "lapwing_stage_duration_seconds" Some("seconds"), ["route", "model", "upstream", "stage"],
        "Time that a stage owned in the answered requests that have it; the sums over all stages add up to the sum of the answered requests.";
    STAGE_SOURCE: Counter "lapwing_stage_source" None, ["route", "model", "upstream", "stage", "source"],
        "Answered requests that have the stage, by the source of most of it.";
    COVERAGE: Gauge "lapwing_attribution_coverage_ratio" Some("ratio"), ["route", "model", "upstream"],
        "Share of the upstream windows that reports and spans claim, since start; claimed over window seconds gives it over any time.";
    WINDOW: Counter "lapwing_upstream_window_seconds" Some("seconds"), ["route", "model", "upstream"],
        "Time from the last request byte handed to the upstream to its last response byte, of answered requests.";
    WINDOW_CLAIMED: Counter "lapwing_upstream_window_claimed_seconds" Some("seconds"), ["route", "model", "upstream"],
        "The part of the upstream windows that reports and spans claim.";
    INCOMPLETE: Counter "lapwing_exchanges_incomplete" None, ["route", "model", "upstream"],
        "Requests that were recorded without spans that requests like them have.";
    MENDED: Counter "lapwing_exchanges_mended" None, ["route", "model", "upstream"],
        "Recorded requests that spans mended which came late, while the requests stood in /exchanges.";
    MENDED_SECONDS: Counter "lapwing_exchanges_mended_seconds" Some("seconds"), ["route", "model", "upstream"],
        "Time that moved from one stage to another in mended requests; the histograms keep it where it was recorded.";
    POLLED_SECONDS: Counter "lapwing_polled_stage_seconds" Some("seconds"), ["model", "upstream", "stage", "phase"],
        "Time that the upstream's own statistics counted for a stage between polls; over the polled requests of the same labels it is a mean of many requests, and is in no histogram. phase is prefill or decode where the server tells them apart, else empty.";
    POLLED_REQUESTS: Counter "lapwing_polled_requests" None, ["model", "upstream", "stage", "phase"],
        "Requests that the upstream's own statistics counted for a stage between polls.";
    INFERRED_SECONDS: Gauge "lapwing_inferred_stage_seconds" Some("seconds"), ["route", "model", "upstream", "stage", "estimate"],
        "Time of the requests of the last five minutes in stages of a server that reports none, inferred from work and requests in flight; the sum over the requests. stage is forward, queue, or upstream for what neither explains; estimate is sum, or the low or high end of its 95 % interval.";
    INFERRED_REQUESTS: Gauge "lapwing_inferred_requests" None, ["route", "model", "upstream"],
        "Of how many requests lapwing_inferred_stage_seconds is the time.";
    PREDICTED_WAIT: Gauge "lapwing_predicted_wait_seconds" Some("seconds"), ["route", "model", "upstream", "estimate"],
        "How long a request that came now would wait for others, inferred; estimate is mean, or the low or high end of its 95 % interval.";
    UTILISATION: Gauge "lapwing_inferred_utilisation_ratio" Some("ratio"), ["route", "model", "upstream", "estimate"],
        "The share of its slots' time that the server works, inferred for series with a budget.";
    CAPACITY: Gauge "lapwing_capacity_requests_per_second" None, ["route", "model", "upstream", "quantile", "estimate"],
        "The rate at which the quantile would cross its budget, inferred; p99, if that has one.";
    FIRST_BYTE: Histogram "lapwing_time_to_first_byte_seconds" Some("seconds"), ["route", "model", "upstream"],
        "From the first byte of a request to the first byte of the body of its streamed response, whatever its format.";
    STREAM_DURATION: Histogram "lapwing_stream_duration_seconds" Some("seconds"), ["route", "model", "upstream"],
        "Durations of long-lived streams, however they ended; they are in no other histogram.";
    STREAM_BYTES: Counter "lapwing_stream_bytes" Some("bytes"), ["route", "model", "upstream", "direction"],
        "Bytes of long-lived streams that ended; direction is request (from clients) or response.";
    STAGE_PER_UNIT: Histogram "lapwing_stage_seconds_per_unit" None, ["route", "model", "upstream", "stage", "unit"],
        "Seconds that a stage or phase owned of an answered request, over the units of work that it had, each request once; stage is a phase too.";
    STAGE_UNITS: Counter "lapwing_stage_units" None, ["route", "model", "upstream", "stage", "unit"],
        "Units of work by which the time of a stage or phase was divided.";
    WORK_UNITS: Counter "lapwing_work_units" None, ["route", "model", "upstream", "unit"],
        "Units of work that answered requests asked for, in every unit that is known.";
    CLASS_DURATION: Histogram "lapwing_class_duration_seconds" Some("seconds"), ["route", "model", "upstream", "class", "unit"],
        "Durations of answered requests by cost class: class is the lowest amount of the unit in it, and the next class has twice that.";
    PHASE_DURATION: Histogram "lapwing_phase_duration_seconds" Some("seconds"), ["route", "model", "upstream", "phase"],
        "Time that a phase (prefill, decode of forward; dispatch, coalesced of queue) owned in answered requests.";
    FIRST_TOKEN: Histogram "lapwing_time_to_first_token_seconds" Some("seconds"), ["route", "model", "upstream", "observer"],
        "From the first byte of a request to the first content of its streamed answer (observer proxy), or as the server reports it, from the request's arrival there (observer server).";
    PER_OUTPUT_TOKEN: Histogram "lapwing_time_per_output_token_seconds" Some("seconds"), ["route", "model", "upstream", "observer"],
        "Time from the first content to the last over the output tokens after the first, each answer once, without tokens that the client was not sent; observer is proxy or server.";
    INTER_TOKEN: Histogram "lapwing_inter_token_seconds" Some("seconds"), ["route", "model", "upstream"],
        "Every gap between tokens of streamed answers, as the proxy read them; a chunk has as many equal gaps as the server says that it has tokens, else one.";
    DEBT_RATIO: Histogram "lapwing_computational_debt_ratio" Some("ratio"), ["route", "model", "upstream", "class", "unit", "optimum"],
        "Reported or traced forward of an answered request over what the optimum takes for the same work, by cost class; optimum names it. Left out while no request has a debt.";
    DEBT_SECONDS: Counter "lapwing_computational_debt_seconds" Some("seconds"), ["route", "model", "upstream", "optimum"],
        "Time of reported or traced forward above the optimum; requests that were quicker take nothing off it.";
    BATCH_SIZE: Gauge "lapwing_batch_size" None, ["route", "model", "upstream"],
        "Rows per execution of the model, a mean over the upstream's latest poll of its statistics; absent once that is older than three poll intervals.";
    BATCH_PADDING: Gauge "lapwing_batch_padding_ratio" Some("ratio"), ["route", "model", "upstream"],
        "Share of what the model executed that was padding, by the upstream's latest statistics.";
    RUNNING: Gauge "lapwing_upstream_requests_running" None, ["route", "model", "upstream"],
        "Requests that ran in the upstream by its latest poll, likewise; the upstream's own count, not to be summed over series.";
    WAITING: Gauge "lapwing_upstream_requests_waiting" None, ["route", "model", "upstream"],
        "Requests that waited in the upstream, likewise.";
    UPSTREAM_INFO: Gauge "lapwing_upstream_info" None, ["upstream", "server"],
        "Always 1; the recognised server of an upstream is a label.";
    SHADOW_SAMPLED: Counter "lapwing_shadow_sampled_requests" None, [],
        "Requests that were sampled, by the share or by quota, and handed to the shadow's thread.";
    SHADOW_QUOTA: Counter "lapwing_shadow_quota_requests" None, ["route", "result"],
        "Requests on routes with a quota that the share did not draw: taken (copied), let_go (captured, and their class had its copies or they were not answered) or skipped (not captured or not copied, because the room is for the share).";
    SHADOW_REQUESTS: Counter "lapwing_shadow_requests" None, ["target", "result"],
        "Copies of requests that were sent, by what became of them: answered (in full, whatever the status) or failed (no answer, none in time, or one that is too large).";
    SHADOW_DROPPED: Counter "lapwing_shadow_dropped" None, ["target", "reason"],
        "Copies that were not sent, not compared, or whose result was lost, by reason; the target is empty where a request was dropped before it had copies.";
    RECORDING_DROPPED: Counter "lapwing_recording_dropped" None, ["reason"],
        "Sampled requests that recordings did not write, by reason; absent while there are none.";
    UPSTREAM_UP: Gauge "lapwing_upstream_up" None, ["upstream"],
        "Whether each of several upstreams takes connections, as far as is known: 1 or 0.";
    UPSTREAM_IN_FLIGHT: Gauge "lapwing_upstream_requests_in_flight" None, ["upstream"],
        "Requests in flight at each of several upstreams.";
    UPSTREAM_CERTIFICATE_EXPIRY: Gauge "lapwing_upstream_certificate_expiry_timestamp_seconds" Some("seconds"), ["upstream"],
        "When the first certificate of the chain in upstreams.NAME.tls expires.";
    UPSTREAM_TAGS: Gauge "lapwing_upstream_tags" None, ["upstream"],
        "Always 1; the tags of each of several upstreams are labels too.";
    SPLIT_SHARE: Gauge "lapwing_split_share" None, ["candidate"],
        "The share of keys that a live split sends to the candidate, 0 to 1.";
    SPLIT_STOPPED: Gauge "lapwing_split_stopped" None, ["candidate"],
        "Whether a limit of the split was exceeded, so that the candidate gets nothing any more: 1 or 0.";
    SPLIT_REQUESTS: Counter "lapwing_split_requests" None, ["candidate", "side"],
        "Requests that the split placed: with the candidate, with the baseline, there because they have no key (without_key), or with the other side because theirs took no connections (away).";
    SPLIT_JUDGED: Counter "lapwing_split_judged" None, ["candidate"],
        "Requests that were judged.";
    TRIAL_ON: Gauge "lapwing_trial_on" None, ["lever"],
        "Whether a trial has it on: 1 or 0.";
    TRIAL_STOPPED: Gauge "lapwing_trial_stopped" None, ["lever"],
        "Whether it did harm and stays off: 1 or 0.";
    TRIAL_BLOCKS: Counter "lapwing_trial_blocks" None, ["lever", "side"],
        "Blocks that are over: on, off, or not compared as most requests failed (failed).";
    TRIAL_REQUESTS: Counter "lapwing_trial_requests" None, ["lever", "side"],
        "Requests of a trial: on, off, or not counted, in a block's beginning (dropped) or longer than it (outlasting).";
    DISPATCH_ON: Gauge "lapwing_dispatch_on" None, [],
        "Whether requests wait in front of the upstreams, by dispatch.mode or a trial: 1, or 0 where what the queue would bring is only observed.";
    DISPATCH_WAITING: Gauge "lapwing_dispatch_waiting" None, ["class"],
        "Requests that wait in front of the upstreams, by class of dispatch.";
    DISPATCH_WAITING_WORK: Gauge "lapwing_dispatch_waiting_work_seconds" Some("seconds"), ["class"],
        "What they are expected to take of one slot, all together.";
    DISPATCH_CLASS_REQUESTS: Counter "lapwing_dispatch_class_requests" None, ["class", "result"],
        "Requests of which it was known what they take, by class of dispatch and what became of them: sent at once (sent), waited (queued), refused, for they would have missed their deadline (refused); of those that waited, no longer able to meet their deadline (expired).";
    DISPATCH_WAIT: Histogram "lapwing_dispatch_wait_seconds" Some("seconds"), ["class"],
        "How long requests waited in front of the upstreams, by class of dispatch, whatever became of them; without those that were sent at once.";
    DISPATCH_SLOTS: Gauge "lapwing_dispatch_slots" None, ["upstream"],
        "How many requests an upstream works on at once, as found out or by dispatch.slots; absent where that is not known.";
    DISPATCH_WINDOW_REFUSED: Gauge "lapwing_dispatch_window_refused" None, ["upstream", "reason"],
        "Always 1; an upstream in front of which nothing waits, by why: too_few_requests, no_waiting_seen or not_one_by_one (it batches, or all that are in it share something).";
    DISPATCH_SPEED: Gauge "lapwing_dispatch_speed_ratio" Some("ratio"), ["upstream"],
        "How fast an upstream works: 1 is the mean of all, 2 takes half the time.";
    DISPATCH_EJECTED: Gauge "lapwing_dispatch_ejected" None, ["upstream"],
        "Whether one of several upstreams is sent nothing for now, because it failed several times in a row: 1 or 0.";
    DISPATCH_DOUBTED: Gauge "lapwing_dispatch_doubted" None, ["upstream"],
        "Whether a request failed at an upstream within the last 100 ms, so that others are preferred: 1 or 0.";
    DISPATCH_STALLED: Gauge "lapwing_dispatch_stalled" None, ["upstream"],
        "Whether nothing has ended at an upstream since its oldest request took longer than 99 of 100 do, so that others are preferred: 1 or 0.";
    DISPATCH_EJECTIONS: Counter "lapwing_dispatch_ejections" None, [],
        "How often an upstream was left alone because it failed.";
    DISPATCH_PANICS: Counter "lapwing_dispatch_panics" None, [],
        "How often the queue panicked: who waited was sent as without it, and it began afresh.";
    DISPATCH_SERVICE: Counter "lapwing_dispatch_service_seconds" Some("seconds"), [],
        "What all requests that were sent are expected to take of one slot, second ones not counted.";
    HEDGE_SERVICE: Counter "lapwing_hedge_service_seconds" Some("seconds"), [],
        "What second requests of dispatch.hedge are expected to take of one slot; over the other, their share.";
    CACHE_REQUESTS: Counter "lapwing_cache_requests" None, ["result"],
        "Requests that the cache might answer, by what became of them. Answered without asking the upstream: from memory (l1), from the shared Redis (l2), with the answer to the same request, which was under way (coalesced). Else asked, because there was no answer (miss) or, although there was one, to compare (verified); its route and model have not been shown to give the same answer (unproven) or gave another (refused); too many waited for it (followers_full) or led others (leaders_full), or it waited in vain (follower_alone). only_if_cached: refused, for its client wanted no answer but one from here. Absent, as what follows, while the cache is off.";
    CACHE_REFUSED: Counter "lapwing_cache_refused" None, ["reason"],
        "Requests that no earlier answer may be given to, and answers that may not be kept, by reason: those of docs/CACHE.md; unread is an answer for which too much was waiting.";
    CACHE_COMPARED: Counter "lapwing_cache_compared" None, ["result"],
        "Answers that were compared with an earlier one to the same question: same or different.";
    CACHE_SERIES: Gauge "lapwing_cache_series" None, ["state"],
        "Routes and models by whether they give the same answer to the same question: unproven, proven or refused.";
    CACHE_ENTRIES: Gauge "lapwing_cache_entries" None, [],
        "Answers in memory.";
    CACHE_BYTES: Gauge "lapwing_cache_bytes" Some("bytes"), [],
        "What they take, with all that keeps them; cache.max_bytes bounds it.";
    CACHE_STORED: Counter "lapwing_cache_stored" None, [],
        "Answers that were stored.";
    CACHE_SAVED: Counter "lapwing_cache_saved_seconds" Some("seconds"), [],
        "What the upstream took for the answers that were given again.";
    CACHE_WAITING: Gauge "lapwing_cache_waiting" None, ["role"],
        "Requests at the upstream whose answer others may be given (leading), and those that wait for it (following).";
    DOWNSTREAM_CALLS: Counter "lapwing_downstream_calls" None, ["downstream", "name", "result"],
        "Calls that the model server made through Lapwing (downstreams), by the name of the command or method, other where it is unknown; result is answered, failed (the answer is an error) or cut (the connection ended first). Absent, as what follows, where there are no downstreams.";
    DOWNSTREAM_CALL_DURATION: Histogram "lapwing_downstream_call_duration_seconds" Some("seconds"), ["downstream"],
        "From the first byte of a call to the last byte of its answer handed to the server; without calls that wait for others (BLPOP), and those that a transaction queues.";
    DOWNSTREAM_KEYS: Counter "lapwing_downstream_keys" None, ["downstream"],
        "Keys that reading calls named.";
    DOWNSTREAM_LOOKUPS: Counter "lapwing_downstream_lookups" None, ["downstream", "result"],
        "What calls asked for whose answers show whether it is there: hit or miss.";
    DOWNSTREAM_BYTES: Counter "lapwing_downstream_bytes" Some("bytes"), ["downstream", "direction"],
        "Bytes sent to a downstream and received from it.";
    DOWNSTREAM_WAITS: Counter "lapwing_downstream_waits" None, ["downstream", "join"],
        "Times in which the server waited for a downstream, by what became of them: joined to a request by trace, or because it was alone; to none because several were in flight (among) or none was (outside), its request was not found (unmatched), or too many waited (shed).";
    DOWNSTREAM_WAIT_SECONDS: Counter "lapwing_downstream_wait_seconds" Some("seconds"), ["downstream", "join"],
        "What these times lasted.";
    DOWNSTREAM_CONNECTIONS_OPEN: Gauge "lapwing_downstream_connections_open" None, ["downstream"],
        "Connections of the server to a downstream that are open.";
    DOWNSTREAM_CONNECTIONS: Counter "lapwing_downstream_connections" None, ["downstream"],
        "Connections that the server opened to a downstream.";
    DOWNSTREAM_CONNECTS_FAILED: Counter "lapwing_downstream_connects_failed" None, ["downstream"],
        "Those that were closed because there was no connection to be had to the downstream.";
    DOWNSTREAM_UNREAD: Counter "lapwing_downstream_unread" None, ["downstream", "reason"],
        "Connections that passed on and were no longer read, by reason: malformed, too_deep, unasked (an answer without a call), too_many (calls open at once), monitor, replication or upgraded.";
    SHADOW_MISMATCHES: Counter "lapwing_shadow_mismatches" None, ["target", "cause", "kind"],
        "Pairs whose outputs differ in what the upstream's own second answers do not, by kind of difference; one pair may have several. Rates need one cause: those of quota are not in proportion to the traffic.";
    SHADOW_COMPARED: Counter "lapwing_shadow_compared" None, ["target", "cause"],
        "Pairs whose outputs were compared and judged, by why they were copied: share or quota.";
    SHADOW_UNJUDGED: Counter "lapwing_shadow_unjudged" None, ["target", "cause", "reason"],
        "Pairs of which cannot be said whether their outputs agree, by reason: the upstream's own answers differ as much (upstream_varies), it was asked twice too rarely or never (too_few_repeats, noise_not_measured), an answer is not understood, too large or cut off, or both servers failed. They are in neither of the other two.";
    SHADOW_DURATION: Histogram "lapwing_shadow_duration_seconds" Some("seconds"), ["target", "route", "model", "stage"],
        "Time that a stage owned in the answered copies that have it.";
    SHADOW_RATIO: Histogram "lapwing_shadow_latency_ratio" Some("ratio"), ["target", "route", "model", "stage"],
        "The copy's time over that of its request, where both were answered; total is the whole time at the server, all else a stage or phase that both servers told. Without requests that a quota took.";
    SERIES: Gauge "lapwing_series" None, [],
        "Series (route, model and upstream) in use.";
    SERIES_LIMIT: Gauge "lapwing_series_limit" None, [],
        "The most series that there may be; further ones are counted under other.";
    SERIES_OVERFLOWED: Counter "lapwing_series_overflowed" None, [],
        "Requests counted under other because the limit of series was reached.";
    SERIES_RETIRED: Counter "lapwing_series_retired" None, [],
        "Series that gave way to others after they had been idle; what they counted is in no other metric, but in retired of /stats.";
    NAMES_UNPROVEN: Counter "lapwing_names_unproven" None, ["table"],
        "Requests whose route or model (table) is counted as other, because no answer has proved it: the upstream answered neither 2xx nor 5xx to it.";
    NAMES_OVERFLOWED: Counter "lapwing_names_overflowed" None, ["table"],
        "Requests whose route or model (table) is counted as other, because the table of names was full.";
    BUILD_INFO: Gauge "lapwing_build_info" None, ["version"],
        "Always 1; the version is a label.";
    UPTIME: Gauge "lapwing_uptime_seconds" Some("seconds"), [],
        "Time since the process started.";
    PROCESS_START: Gauge "process_start_time_seconds" Some("seconds"), [],
        "When the process started, in seconds since the Unix epoch.";
    PROCESS_RSS: Gauge "process_resident_memory_bytes" Some("bytes"), [],
        "Resident memory; absent where /proc cannot be read.";
}

/// The rows of [`Counter`] of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFamily {
    /// The name without `_total`.
    pub name: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The common part of the rows' help texts.
    pub help: String,
    /// The rows.
    pub rows: Vec<Counter>,
}

/// The families of [`Counter`]'s table, in its order.
#[must_use]
pub fn row_families() -> Vec<RowFamily> {
    let mut families: Vec<RowFamily> = Vec::new();
    for counter in Counter::ALL {
        let row = counter.row();
        if let Some(family) = families.iter_mut().find(|family| family.name == row.metric) {
            family.help = shared(row.help);
            family.rows.push(*counter);
            continue;
        }
        let kind = match row.kind {
            CounterKind::Counter => MetricKind::Counter,
            CounterKind::Gauge | CounterKind::Timestamp => MetricKind::Gauge,
        };
        families.push(RowFamily { name: row.metric, kind, help: row.help.to_owned(), rows: vec![*counter] });
    }
    families
}

fn shared(help: &str) -> String {
    format!("{}.", help.split(':').next().unwrap_or(help))
}

#[cfg(test)]
mod tests;
