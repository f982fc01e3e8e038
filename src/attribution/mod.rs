//! Who owns the upstream window: in-band reports, OTLP spans, the pending join and the merge.

pub mod adapters;
mod aggregator;
mod config;
mod expect;
mod merge;
mod orphans;
pub mod otlp;
mod pending;
mod poll;
mod polled;
mod recent;
mod rendered;
mod rules;
pub mod server_timing;
mod span;
mod synonyms;
mod tree;

pub use aggregator::{Aggregator, Join, Merge};
pub use config::Config;
pub use expect::Expect;
pub use merge::{Claims, merge, merge_polled, placed};
pub use poll::Poller;
pub use polled::{Polled, Statistics};
pub use rendered::{Rendered, rendered};
pub use rules::{Rules, STAGE_ATTRIBUTE, SpanRule};
pub use span::{IncomingSpan, Piece, ServerSpan, SpanKind};
