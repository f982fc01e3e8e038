//! Who owns the upstream window: in-band reports, OTLP spans, the pending join and the merge.

mod span;

pub use span::{IncomingSpan, SpanKind};
