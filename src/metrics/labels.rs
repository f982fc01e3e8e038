//! The label values of all series, interned in bounded tables.

use crate::ledger::LabelTable;

/// Routes, models and upstreams.
#[derive(Debug)]
pub struct Labels {
    /// Routes: method and folded path.
    pub routes: LabelTable,
    /// Models.
    pub models: LabelTable,
    /// Upstreams.
    pub upstreams: LabelTable,
}

impl Labels {
    /// Empty tables with these bounds.
    #[must_use]
    pub fn new(routes: usize, models: usize, upstreams: usize) -> Self {
        Self { routes: LabelTable::new(routes), models: LabelTable::new(models), upstreams: LabelTable::new(upstreams) }
    }
}
