//! The label values of all series, interned in bounded tables.

use crate::ledger::LabelTable;

/// How many optima there may be; further ones are `other`.
const OPTIMA: usize = 256;

/// Routes, models and upstreams, and the optima that forward is compared with.
#[derive(Debug)]
pub struct Labels {
    /// Routes: method and folded path.
    pub routes: LabelTable,
    /// Models.
    pub models: LabelTable,
    /// Upstreams.
    pub upstreams: LabelTable,
    /// What the optimal time of a model's forward is derived from.
    pub optima: LabelTable,
}

impl Labels {
    /// Empty tables with these bounds; there may be 256 optima.
    #[must_use]
    pub fn new(routes: usize, models: usize, upstreams: usize) -> Self {
        let [routes, models, upstreams, optima] = [routes, models, upstreams, OPTIMA].map(LabelTable::new);
        Self { routes, models, upstreams, optima }
    }
}
