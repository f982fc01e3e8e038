//! Histograms, windows and counters: everything that is measured, defined once.

#![forbid(unsafe_code)]

mod buckets;
mod budget;
mod cells;
mod config;
mod counters;
mod debt;
pub mod defs;
mod exemplars;
mod exponential;
pub mod exposition;
mod figures;
pub mod gather;
mod labels;
mod layout;
mod measure;
mod open_requests;
mod polled;
mod registry;
mod series;
mod slowest;
mod snapshot;
mod sparse;
mod sums;
pub mod views;
mod window;

pub use buckets::{PER_UNIT_BOUNDS_PS, REQUEST_BOUNDS_NS, STREAM_BOUNDS_NS};
pub use budget::{Budget, RouteBudget};
pub use config::{Config, Shown};
pub use counters::{Counter, CounterKind, CounterRow, Counters};
pub use debt::{DEBT_BOUNDS_PPM, DebtGap, DebtTotals, RatioExtent};
pub use exemplars::Exemplar;
pub use exponential::{ExponentialBuckets, FINEST_SCHEMA, WIDEST_SCHEMA};
pub use figures::{Retired, SeriesTotals};
pub use labels::{Labels, NAME_TABLES};
pub use layout::{DIGITS, HIGH_NS, LOW_NS, Layout, PER_UNIT_DIGITS, PER_UNIT_HIGH_PS, PER_UNIT_LOW_PS};
pub use measure::{Measure, slots};
pub use open_requests::{OpenRequests, RequestGeneration};
pub use polled::{BatchStatistics, PolledInterval, PolledKey, PolledStage, PolledSum, PolledTotals};
pub use registry::{Order, PolledSnapshot, Registry};
pub use series::SeriesFacts;
pub use snapshot::{Distribution, HistogramScratch, RatioDistribution, SeriesSnapshot, UnitDistribution, Units};
pub use sums::{Extent, Mean, UnitExtent, WorkSum, per_unit_ps};
pub use window::Window;
