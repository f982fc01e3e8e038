//! The label values of every series, interned with a bound each.

use crate::ledger::Names;

/// Routes, models and upstreams.
#[derive(Debug)]
pub struct Labels {
    /// Method and folded path.
    pub routes: Names,
    /// Models.
    pub models: Names,
    /// Upstreams.
    pub upstreams: Names,
}

impl Labels {
    /// Empty tables with these bounds.
    #[must_use]
    pub fn new(routes: usize, models: usize, upstreams: usize) -> Self {
        Self { routes: Names::new(routes), models: Names::new(models), upstreams: Names::new(upstreams) }
    }
}
