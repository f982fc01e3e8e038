//! Histograms, windows and counters: everything that is measured, defined once.

mod counters;

pub use counters::{Counter, Counters, Row, RowKind};
