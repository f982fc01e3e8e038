//! Histograms, windows and counters: everything that is measured, defined once.
//!
//! [`Registry`] records finished exchanges in the histograms of their series, [`Counters`] what Lapwing itself did; both are read as
//! snapshots. Nothing here does I/O, writes a format, or judges what it counted, and no histogram mixes measured values with means.
//!
//! ```
//! use lapwing_metrics::{Counter, Counters, Layout};
//!
//! let counters = Counters::default();
//! counters.bump(Counter::PollsOk);
//! assert_eq!(counters.get(Counter::PollsOk), 1);
//!
//! let mut forward = Layout::Time.histogram();
//! forward.saturating_record(250_000_000);
//! // at most 0.1 % above the exact value
//! assert!((250_000_000..=250_250_000).contains(&forward.max()));
//! ```

#![forbid(unsafe_code)]

mod buckets;
mod budget;
mod cells;
mod config;
mod counters;
mod debt;
pub mod defs;
mod duration_histogram;
mod exemplars;
mod exponential;
pub mod exposition;
mod figures;
pub mod gather;
mod goodput;
mod labels;
mod layout;
mod load;
mod measure;
mod open_requests;
mod polled;
mod registry;
mod series;
mod slowest;
mod snapshot;
mod sparse;
mod sums;
mod upkeep;
pub mod views;
mod window;

pub use buckets::{PER_UNIT_BOUNDS_PS, REQUEST_BOUNDS_NS, STREAM_BOUNDS_NS};
pub use budget::{Budget, ModelBudget, RequestLimits, RouteBudget};
pub use config::{Config, Shown};
pub use counters::{Counter, CounterKind, CounterRow, Counters};
pub use debt::{DEBT_BOUNDS_PPM, DebtGap, DebtTotals, RatioExtent};
pub use duration_histogram::{DurationHistogram, ScrapedDurations};
pub use exemplars::Exemplar;
pub use exponential::{ExponentialBuckets, FINEST_SCHEMA, WIDEST_SCHEMA};
pub use figures::{Retired, SeriesTotals};
pub use goodput::{BudgetMiss, BudgetedWork, GoodputTotals};
pub use labels::{Labels, NAME_TABLES};
pub use layout::{DIGITS, HIGH_NS, LOW_NS, Layout, PER_UNIT_DIGITS, PER_UNIT_HIGH_PS, PER_UNIT_LOW_PS};
pub use load::{EndpointLoad, LatestLoad};
pub use measure::{Measure, slots};
pub use open_requests::{OpenRequests, RequestGeneration};
pub use polled::{BatchStatistics, PolledInterval, PolledKey, PolledStage, PolledSum, PolledTotals};
pub use registry::{Order, PolledSnapshot, Registry};
pub use series::SeriesFacts;
pub use snapshot::{Distribution, HistogramScratch, RatioDistribution, SeriesSnapshot, UnitDistribution, Units};
pub use sums::{Extent, Mean, UnitExtent, WorkSum, per_unit_ps};
pub use upkeep::RegistryUpkeep;
pub use window::Window;
