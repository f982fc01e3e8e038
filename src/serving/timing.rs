//! `Server-Timing` of an answer: its stages in milliseconds, by the names that Lapwing's reader knows.

use http::{HeaderName, HeaderValue};

use super::metrics::Spent;

/// The field of HTTP, and the key of gRPC's metadata.
pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Who ran the model: `plan` or `tract`.
pub(super) const EXECUTOR: HeaderName = HeaderName::from_static("lapwing-executor");

/// `preprocessing;dur=0.012345, queue;dur=…, forward;dur=…, postprocessing;dur=…`
pub(super) fn server_timing(spent: &Spent) -> Option<HeaderValue> {
    let entry = |(name, ns): (&str, u64)| format!("{name};dur={}.{:06}", ns / 1_000_000, ns % 1_000_000);
    HeaderValue::try_from(spent.stages().map(entry).join(", ")).ok()
}
