//! Histograms, windows and counters: everything that is measured, defined once.

mod buckets;
mod cells;
mod config;
mod counters;
pub mod defs;
mod figures;
mod labels;
mod layout;
mod registry;
mod series;
mod slowest;
mod snapshot;
mod window;

pub use buckets::{REQUEST_BOUNDS_NS, STREAM_BOUNDS_NS};
pub use config::Config;
pub use counters::{Counter, Counters, Row, RowKind};
pub use figures::{Extent, Figures, Measure};
pub use labels::Labels;
pub use layout::{DIGITS, HIGH_NS, LOW_NS, histogram};
pub use registry::{Order, Registry};
pub use snapshot::{Distribution, SeriesSnapshot, Snapshot};
pub use window::Window;
