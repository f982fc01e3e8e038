//! `Server-Timing` of an answer: its stages in milliseconds, under the names that Lapwing's attribution reads.

use http::{HeaderName, HeaderValue};

use super::metrics::StageTimes;

/// The field of HTTP, and the key of gRPC's metadata.
pub(crate) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// What ran the model: `plan` or `tract`.
pub(crate) const EXECUTOR: HeaderName = HeaderName::from_static("lapwing-executor");

/// `preprocessing;dur=0.012345, queue;dur=…, forward;dur=…, postprocessing;dur=…`
pub(crate) fn server_timing(spent: &StageTimes) -> Option<HeaderValue> {
    let entry = |(name, ns): (&str, u64)| format!("{name};dur={}.{:06}", ns / 1_000_000, ns % 1_000_000);
    HeaderValue::try_from(spent.stages().map(entry).join(", ")).ok()
}
