//! Who owns the upstream window: in-band reports, OTLP spans, the pending join and the merge.

mod aggregator;
mod expect;
mod merge;
mod orphans;
mod pending;
mod recent;
mod rendered;
mod config;
mod span;
mod tree;

pub use aggregator::{Aggregator, Join, Merge};
pub use expect::Expect;
pub use merge::{Claims, merge, placed};
pub use rendered::{Rendered, rendered};
pub use config::{Config, ExpectSpans, SpanRule};
pub mod otlp;
mod rules;
pub mod server_timing;
mod span;
mod synonyms;

pub use rules::{Rules, STAGE_ATTRIBUTE, SpanRule};
pub use span::{IncomingSpan, SpanKind};
