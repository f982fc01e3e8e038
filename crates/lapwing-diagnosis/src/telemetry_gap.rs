//! Something that does not arrive or cannot be read, with its causes as data: a row each, the most serious first. `gaps` finds them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is missing from the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TelemetryGap {
    /// Why it is missing.
    pub cause: GapCause,
    /// What is missing, in a sentence.
    pub sentence: String,
    /// How many spans, exports, requests, … are concerned.
    pub count: u64,
    /// Of how many; `None` if that is not known.
    pub of: Option<u64>,
    /// The one change that brings it.
    pub change: String,
}

macro_rules! causes {
    ($($variant:ident $name:literal, $doc:literal;)*) => {
        /// Why something is missing, the most serious first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum GapCause { $(#[doc = $doc] $variant,)* }

        impl GapCause {
            /// Every cause.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name on every surface.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is, as docs/DIAGNOSIS.md has it.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

causes! {
    ProfilesDropped "profiles_dropped", "Requests were served but not profiled.";
    ClientsWaited "clients_waited", "Client connections waited for a file descriptor, and nothing of their requests was seen meanwhile.";
    CertificateExpires "certificate_expires", "One of the certificates that Lapwing shows has less than a tenth of its life left.";
    TracingOff "tracing_off", "Both OTLP receivers are off, so no span can arrive, and requests get no trace id.";
    TraceSamplingOff "trace_sampling_off", "`trace_sampling` is off, so no span is joined, and requests get no trace id.";
    BodiesOff "bodies_off", "`protocol.read_bodies` is off, so no model, no work and no tokens are known.";
    ExportsRefused "exports_refused", "OTLP exports are refused.";
    SpansUnmatched "spans_unmatched", "Spans come that belong to no request of Lapwing's.";
    SpansAmbiguous "spans_ambiguous", "Spans come whose request cannot be told.";
    SpansLost "spans_lost", "Spans come too late, or find no room.";
    SpansInvalid "spans_invalid", "Spans come without valid ids, or with more elements than are decoded.";
    NoSpans "no_spans", "The server can send spans, and none has come.";
    NothingReported "nothing_reported", "The server reports nothing of its time.";
    CompressedAnswers "compressed_answers", "Answers are not read, because they are compressed in a way that is not read.";
    AnswersUnread "answers_unread", "Answers are not read, because their media type is none that the route is read in.";
    RequestsUnread "requests_unread", "Requests are not read, because of their media type or their compression.";
    PollsFailing "polls_failing", "The server's own statistics cannot be read.";
    TokensEstimated "tokens_estimated", "Tokens are estimated from bytes.";
    TokenizersFailing "tokenizers_failing", "Prompts that a tokenizer should count stay estimated.";
    ReportsMalformed "reports_malformed", "`Server-Timing` entries or servers' own fields cannot be read.";
    ForwardLost "forward_lost", "Telemetry could not be passed on to the collector of `otlp_forward`.";
    TelemetryLost "telemetry_lost", "Lapwing's own telemetry did not reach its collector.";
    AccessLogLost "access_log_lost", "Lines are missing in the access log.";
}
