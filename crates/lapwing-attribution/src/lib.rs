//! Attribution of the time inside the upstream: in-band reports, OTLP spans, polled statistics, the pending join and the merge.
//!
//! [`adapters`] and [`server_timing`] read what an answer's head reports, [`otlp`] receives spans, [`Poller`] reads statistics, and
//! [`Aggregator`] lets ledgers wait for their spans and merges all of it. A report never takes time that the proxy observed, a mean
//! never becomes a duration of one request, and nothing here is on a request's path but the reading of heads.
//!
//! ```
//! use lapwing_attribution::{Aggregator, JoinSettings};
//! use lapwing_ledger::{Ledger, Report, ReportPlace, Stage, Stamp, UpstreamWindow};
//!
//! let mut ledger = Ledger::open(Stamp::default(), 0);
//! ledger.total_ns = 1_000;
//! ledger.window = Some(UpstreamWindow { start_ns: 100, head_ns: 900, end_ns: 950 });
//! ledger.report(Report::of(Stage::Forward, 600, ReportPlace::Head));
//! let (mut aggregator, mut merged) = (Aggregator::new(JoinSettings::default(), Default::default()), Vec::new());
//! // it was not traced, so it waits for no spans
//! aggregator.ledger(ledger, Stamp::default(), &mut |exchange| merged.push(exchange));
//! assert_eq!(merged[0].account.stage_ns(Stage::Forward), 600);
//! ```

#![forbid(unsafe_code)]

pub mod adapters;
mod aggregator;
mod cache_hit;
mod clocks;
pub mod collector;
mod config;
mod expect;
mod join_settings;
pub mod otlp;
mod passed_contexts;
mod pending;
mod poll;
mod recent;
mod rules;
pub mod server_timing;
mod settled;
mod shapes;
mod span;
mod synonyms;

pub use aggregator::{Aggregator, MergeFn};
pub use cache_hit::CacheHitConfig;
pub use config::Config;
pub use expect::SpanExpectation;
pub use join_settings::JoinSettings;
pub use poll::{DESCRIPTION_PATHS, Poller, Statistics, UpstreamEvidence, described_server};
pub use rules::{Rules, STAGE_ATTRIBUTE, SpanRule};
pub use span::{CacheLookups, IncomingSpan, ProcessId, ServerSpan, SharedSpan, SpanKind, SpanPiece};
