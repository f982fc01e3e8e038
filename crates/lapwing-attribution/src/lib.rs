//! Attribution of the time inside the upstream: in-band reports, OTLP spans, polled statistics, and the pending join.

#![forbid(unsafe_code)]

pub mod adapters;
mod aggregator;
mod cache_hit;
mod clocks;
pub mod collector;
mod config;
mod expect;
mod orphans;
pub mod otlp;
mod pending;
mod poll;
mod polled;
mod recent;
mod rules;
pub mod server_timing;
mod settled;
mod shapes;
mod span;
mod synonyms;
mod tree;

pub use aggregator::{Aggregator, JoinSettings, MergeFn};
pub use cache_hit::{CacheHitConfig, CacheLookups};
pub use config::Config;
pub use expect::SpanExpectation;
pub use lapwing_ledger::merge;
pub use poll::{Poller, UpstreamEvidence};
pub use polled::Statistics;
pub use rules::{Rules, STAGE_ATTRIBUTE, SpanRule};
pub use span::{IncomingSpan, ProcessId, ServerSpan, SharedSpan, SpanKind, SpanPiece};
