//! The causes that counters show: from which share on each is reported, and the words.

use super::GapCause;
use lapwing_metrics::Counter as C;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GapRule {
    pub(crate) cause: GapCause,
    /// What is missing.
    pub(crate) missing: &'static [C],
    /// The others of the same kind, which arrived; with `missing` they are "of how many". Empty if that is not known.
    pub(crate) arrived: &'static [C],
    /// The least number that is worth a word.
    pub(crate) least: u64,
    /// The least share, `0..=1`; for what has no others, it is always kept.
    pub(crate) least_share: f64,
    /// The sentence; `{count}` and `{of}` are replaced.
    pub(crate) sentence: &'static str,
    /// The one change.
    pub(crate) change: &'static str,
}

/// All of them.
pub(crate) const GAPS: &[GapRule] = &[
    GapRule {
        cause: GapCause::ProfilesDropped,
        missing: &[C::DroppedChannelFull, C::DroppedPanic],
        arrived: &[],
        least: 1,
        least_share: 0.0,
        sentence: "{count} requests were served but not profiled: they are in no figure",
        change: "give Lapwing a processor of its own (a CPU request, fewer proxy.workers); if lapwing_exchanges_dropped_total says panic, report it",
    },
    GapRule {
        cause: GapCause::ClientsWaited,
        missing: &[C::ClientsWaited],
        arrived: &[],
        least: 1,
        least_share: 0.0,
        sentence: "{count} connections of clients waited for a file descriptor: the time that they waited is in no figure",
        change: "raise the limit on open files (ulimit -n; in a container its nofile limit)",
    },
    GapRule {
        cause: GapCause::SpansUnmatched,
        missing: &[C::SpansUnmatched],
        arrived: &[C::SpansJoined, C::SpansAmbiguous, C::SpansLate, C::SpansShed],
        least: 10,
        least_share: 0.2,
        sentence: "{count} of {of} spans that came belong to no request of Lapwing's: the server continues another trace than the \
                   traceparent that it gets, or begins one of its own",
        change: "let the server continue traceparent (OTEL_PROPAGATORS=tracecontext,baggage, and instrumentation that reads it)",
    },
    GapRule {
        cause: GapCause::SpansAmbiguous,
        missing: &[C::SpansAmbiguous],
        arrived: &[C::SpansJoined, C::SpansUnmatched, C::SpansLate, C::SpansShed],
        least: 10,
        least_share: 0.05,
        sentence: "{count} of {of} spans that came could be of several requests, and are joined to none",
        change: "let each request of a client have a traceparent of its own",
    },
    GapRule {
        cause: GapCause::SpansLost,
        missing: &[C::SpansLate, C::SpansShed],
        arrived: &[C::SpansJoined, C::SpansAmbiguous, C::SpansUnmatched],
        least: 10,
        least_share: 0.05,
        sentence: "{count} of {of} spans came after their request was recorded, or found no room",
        change: "let the exporter send sooner (OTEL_BSP_SCHEDULE_DELAY=1000), or make attribution.grace longer",
    },
    GapRule {
        cause: GapCause::SpansInvalid,
        missing: &[C::SpansInvalid, C::SpansRejected],
        arrived: &[C::SpansReceived],
        least: 1,
        least_share: 0.01,
        sentence: "{count} of {of} spans that came have no valid ids, or more elements than are decoded",
        change: "let an exporter of an OpenTelemetry SDK send them, with fewer attributes and events",
    },
    GapRule {
        cause: GapCause::PollsFailing,
        missing: &[C::PollsFailed],
        arrived: &[C::PollsOk],
        least: 1,
        least_share: 0.5,
        sentence: "{count} of {of} polls of the server's own statistics failed",
        change: "set attribution.poll to the address and path of the server's statistics, or to off",
    },
    GapRule {
        cause: GapCause::TokenizersFailing,
        missing: &[C::PromptsFailed, C::PromptsSkipped],
        arrived: &[],
        least: 1,
        least_share: 0.0,
        sentence: "the tokens of {count} prompts stay estimated though their model has a tokenizer",
        change: "look at lapwing_prompts_not_tokenized_total: failed is another tokenizer or template than the model's, busy is too little processor time",
    },
    GapRule {
        cause: GapCause::ReportsMalformed,
        missing: &[C::ReportsMalformed],
        arrived: &[],
        least: 1,
        least_share: 0.0,
        sentence: "{count} Server-Timing entries or fields of servers could not be read",
        change: "write durations as numbers of milliseconds: Server-Timing: model_forward;dur=12.5",
    },
    GapRule {
        cause: GapCause::ForwardLost,
        missing: &[C::OtlpForwardLost],
        arrived: &[C::OtlpForwarded],
        least: 1,
        least_share: 0.01,
        sentence: "{count} of {of} OTLP requests could not be passed on to the collector",
        change: "look whether the collector that otlp_forward names runs and takes them; the log has its answer",
    },
    GapRule {
        cause: GapCause::TelemetryLost,
        missing: &[C::TelemetryMetricsFailed, C::TracesLost, C::TracesDropped],
        arrived: &[C::TelemetryMetricsSent, C::TracesSent],
        least: 1,
        least_share: 0.01,
        sentence: "{count} of {of} of Lapwing's own traces and requests with metrics did not reach the collector",
        change: "look whether the collector that telemetry names runs and takes them; the log has its answer",
    },
    GapRule {
        cause: GapCause::AccessLogLost,
        missing: &[C::AccessLogFull, C::AccessLogFailed],
        arrived: &[],
        least: 1,
        least_share: 0.0,
        sentence: "{count} lines are missing in the access log",
        change: "look whether the file of access_log can be written fast enough: its disk, its pipe",
    },
];

/// The counters whose past is kept: those of the table and of the exports.
pub(crate) const TRACKED: [C; 32] = [
    C::ClientsWaited,
    C::DroppedChannelFull,
    C::DroppedPanic,
    C::SpansUnmatched,
    C::SpansJoined,
    C::SpansAmbiguous,
    C::SpansLate,
    C::SpansShed,
    C::SpansInvalid,
    C::SpansRejected,
    C::SpansReceived,
    C::PollsFailed,
    C::PollsOk,
    C::PromptsFailed,
    C::PromptsSkipped,
    C::ReportsMalformed,
    C::OtlpForwardLost,
    C::OtlpForwarded,
    C::TelemetryMetricsFailed,
    C::TelemetryMetricsSent,
    C::TracesLost,
    C::TracesDropped,
    C::TracesSent,
    C::AccessLogFull,
    C::AccessLogFailed,
    C::OtlpTaken,
    C::OtlpContentType,
    C::OtlpContentEncoding,
    C::OtlpTooLarge,
    C::OtlpUndecodable,
    C::OtlpTooSlow,
    C::OtlpWrongPath,
];
