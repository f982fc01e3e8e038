//! Who owns the upstream window: in-band reports, OTLP spans, the pending join and the merge.

mod config;
mod span;

pub use config::{Config, ExpectSpans, SpanRule};
pub use span::{IncomingSpan, SpanKind};
