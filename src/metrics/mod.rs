//! Histograms, windows and counters: everything that is measured, defined once.

mod config;
mod counters;
mod labels;

pub use config::Config;
pub use counters::{Counter, Counters, Row, RowKind};
pub use labels::Labels;
