//! Who owns the upstream window: in-band reports, OTLP spans, the pending join and the merge.

pub mod otlp;
mod rules;
pub mod server_timing;
mod span;
mod synonyms;

pub use rules::{Rules, STAGE_ATTRIBUTE, SpanRule};
pub use span::{IncomingSpan, SpanKind};
