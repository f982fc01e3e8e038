//! Histograms, windows and counters: everything that is measured, defined once.

mod counters;
mod labels;

pub use counters::{Counter, Counters, Row, RowKind};
pub use labels::Labels;
