//! Notes on merged exchanges what their forward would take at best. Called by the aggregator, never on the request path.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::models::ModelOptima;
use super::optimum::Optimum;
use lapwing_ledger::{Exchange, LabelId, Ledger, OptimalForward, Work};
use lapwing_metrics::Labels;

/// An optimum, and its interned name.
type InternedOptimum = (Arc<Optimum>, LabelId);

/// What is declared for a model.
enum Declared {
    /// This optimum.
    Known(Arc<Optimum>, LabelId),
    /// That of a served model that is not warm yet.
    ToCome,
    /// Nothing.
    Never,
}

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

    /// Notes on an exchange the optimum of its model, if there is one: the declared one, else that of the first engine among the shadow
    /// targets that `runs_same_model` by the target's index. Costs a look-up or two, and nothing where there is no optimum.
    pub fn assess(&self, exchange: &mut Exchange, runs_same_model: impl Fn(usize) -> bool) {
        if !self.optima.is_empty() {
            let Ledger { series, work, .. } = &*exchange.ledger;
            exchange.optimal_forward = self.optimal_forward(series.model, work, runs_same_model);
        }
    }

    fn optimal_forward(&self, model: LabelId, work: &Work, runs_same_model: impl Fn(usize) -> bool) -> Option<OptimalForward> {
        let (optimum, id) = match self.declared(model) {
            Declared::Known(optimum, id) => (optimum, id),
            Declared::ToCome => return None,
            Declared::Never => {
                let engine = self.optima.engines().iter().find(|engine| runs_same_model(engine.target()))?;
                let optimum = engine.optimum()?;
                (optimum.clone(), self.labels.optima.intern(&optimum.name))
            }
        };
        Some(OptimalForward { optimum: id, ps: optimum.forward_ps(work) })
    }

    fn declared(&self, model: LabelId) -> Declared {
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
                    return Declared::ToCome;
                }
                vacant.insert(optimum.map(|optimum| (optimum.clone(), labels.optima.intern(&optimum.name))))
            }
        };
        known.as_ref().map_or(Declared::Never, |(optimum, id)| Declared::Known(optimum.clone(), *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Config, CostLine, OptimalTime, TargetEngine};
    use lapwing_ledger::{Basis, Unit};

    fn optimum(name: &str) -> Optimum {
        let line = CostLine { fixed_ns: 0.0, ns_per_unit: 5.0, unit: Unit::Row };
        Optimum { name: name.into(), time: OptimalTime::Line(line), memory: None }
    }

    /// The optimum that two rows of a model are noted with; the engines of targets 1 and 3, where they run the same model.
    fn noted(model: &str, cost: serde_json::Value, same: &[usize]) -> Option<(String, u64)> {
        let config: Config = serde_json::from_value(cost).unwrap();
        let declared = ModelOptima::new(&config, |_| Err(String::new()), Arc::new(|_| None)).unwrap();
        let engine = |target| TargetEngine::new(target, Box::new(move || Some(optimum(&format!("engine {target}")))));
        let labels = Arc::new(Labels::new(8, 8, 8));
        let assessor = DebtAssessor::new(Arc::new(declared.with_engines(vec![engine(1), engine(3)])), labels.clone());
        let mut work = Work::default();
        work.set(Unit::Row, 2, Basis::Counted);
        let noted = assessor.optimal_forward(labels.models.intern(model), &work, |target| same.contains(&target))?;
        Some((labels.optima.text(noted.optimum).to_string(), noted.ps?.get()))
    }

    #[test]
    fn the_first_engine_that_runs_the_same_model_is_the_optimum() {
        let undeclared = serde_json::json!({});
        assert_eq!(noted("m", undeclared.clone(), &[3]), Some(("engine 3".to_owned(), 10_000)));
        assert_eq!(noted("m", undeclared.clone(), &[3, 1]), Some(("engine 1".to_owned(), 10_000)));
        assert_eq!(noted("m", undeclared, &[0, 2]), None, "no engines");
    }

    #[test]
    fn a_declared_optimum_wins_also_before_it_is_known() {
        let line = serde_json::json!({"ns_per_unit": 1, "unit": "row", "source": "me"});
        for name in ["m", "*"] {
            assert_eq!(noted("m", serde_json::json!({"models": {name: line}}), &[1]), Some(("declared: me".to_owned(), 2_000)));
        }
        assert_eq!(noted("m", serde_json::json!({"models": {"m": {"engine": "cold"}}}), &[1]), None);
        let other = noted("m", serde_json::json!({"models": {"n": line}}), &[1]);
        assert_eq!(other, Some(("engine 1".to_owned(), 10_000)));
    }
}
