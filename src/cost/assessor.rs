//! Notes on merged exchanges what their forward would take at best. Called by the aggregator, never on the request path.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::models::ModelOptima;
use super::optimum::Optimum;
use crate::ledger::{Exchange, LabelId, OptimalForward};
use crate::metrics::Labels;

/// An optimum, and its interned name.
type InternedOptimum = (Arc<Optimum>, LabelId);

/// The optima by the models' labels. Holds one entry for each model that was seen, of which `metrics.max_models` bounds the number.
#[derive(Debug)]
pub struct DebtAssessor {
    optima: Arc<ModelOptima>,
    labels: Arc<Labels>,
    /// `None` for models without one. A model whose optimum is still to come is not in it.
    known: RefCell<FxHashMap<LabelId, Option<InternedOptimum>>>,
}

impl DebtAssessor {
    /// Finds optima for the models in `labels`, and interns their names there.
    #[must_use]
    pub fn new(optima: Arc<ModelOptima>, labels: Arc<Labels>) -> Self {
        Self { optima, labels, known: RefCell::default() }
    }

    /// Forgets the models whose names gave way.
    pub fn retain_named(&self) {
        self.known.borrow_mut().retain(|model, _| self.labels.models.holds(*model));
    }

    /// The exchange with the optimum of its model, if there is one. Costs one look-up, and nothing where no optimum is declared.
    #[must_use]
    pub fn assessed(&self, mut exchange: Exchange) -> Exchange {
        if !self.optima.is_empty() {
            exchange.optimal_forward = self.optimal_forward(&exchange);
        }
        exchange
    }

    fn optimal_forward(&self, exchange: &Exchange) -> Option<OptimalForward> {
        let model = exchange.ledger.series.model;
        let (optima, labels) = (&self.optima, &self.labels);
        let mut known = self.known.borrow_mut();
        let known = match known.entry(model) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let name = labels.models.text(model);
                // models beyond the bound share a label, and are not one model
                let is_declared = model != LabelId::OTHER && optima.declares(&name);
                let optimum = optima.get(&name).filter(|_| is_declared);
                if is_declared && optimum.is_none() {
                    return None;
                }
                vacant.insert(optimum.map(|optimum| (optimum.clone(), labels.optima.intern(&optimum.name))))
            }
        };
        let (optimum, id) = known.as_ref()?;
        Some(OptimalForward { optimum: *id, ps: optimum.forward_ps(&exchange.ledger.work) })
    }
}
