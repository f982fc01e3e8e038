//! The label values of all series, interned in bounded tables, and the rule by which an exchange's names enter them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::config::Config;
use lapwing_ledger::{LabelId, LabelTable, Ledger, NewNames, SeriesKey, Stamp};

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
    no_model: LabelId,
    unproven: [AtomicU64; 2],
    is_told: [AtomicBool; 2],
}

/// The tables that names of requests enter.
pub const NAME_TABLES: [&str; 2] = ["route", "model"];

impl Labels {
    /// Empty tables with these bounds, in which no value gives way; there may be 256 optima.
    #[must_use]
    pub fn new(routes: usize, models: usize, upstreams: usize) -> Self {
        Self::with_idle([routes, models, upstreams], u64::MAX)
    }

    /// Empty tables with the bounds of `config`, and this many upstreams.
    #[must_use]
    pub fn bounded_by(config: &Config, upstreams: usize) -> Self {
        Self::with_idle([config.max_routes, config.max_models, upstreams], config.idle_after.as_nanos())
    }

    fn with_idle([routes, models, upstreams]: [usize; 3], idle_ns: u64) -> Self {
        let [routes, models] = [routes, models].map(|capacity| LabelTable::with_idle(capacity, idle_ns));
        let [upstreams, optima] = [upstreams, OPTIMA].map(LabelTable::new);
        let no_model = models.intern("");
        Self { routes, models, upstreams, optima, no_model, unproven: Default::default(), is_told: Default::default() }
    }

    /// The model label of requests that name no model: the empty text, which never gives way.
    #[must_use]
    pub const fn no_model(&self) -> LabelId {
        self.no_model
    }

    /// The exchange's own route and model, whatever series it is counted under; the model is empty if it has none.
    #[must_use]
    pub fn names_of(&self, ledger: &Ledger) -> (Arc<str>, Arc<str>) {
        let new = |name: fn(&NewNames) -> Option<&str>| ledger.new_names.as_deref().and_then(name).map(Arc::from);
        (
            new(|names| names.route.as_deref()).unwrap_or_else(|| self.routes.text(ledger.series.route)),
            new(|names| names.model.as_deref()).unwrap_or_else(|| self.models.text(ledger.series.model)),
        )
    }

    /// Gives a closed ledger the ids of its new names: if its answer proves them, they are learnt; else they remain `other`, unless
    /// another exchange has proved them meanwhile. Names that remain `other` stay in the ledger, for `/exchanges`.
    pub fn resolve_names(&self, ledger: &mut Ledger, now: Stamp) {
        if ledger.new_names.is_some() {
            let is_proven = ledger.proves_names();
            self.name(ledger, now, is_proven);
        }
    }

    /// Gives a closed ledger the ids of its new names, which are learnt whatever its answer is if they are proven.
    pub fn name(&self, ledger: &mut Ledger, now: Stamp, is_proven: bool) {
        let Some(names) = &ledger.new_names else { return };
        let learn = |which: usize, text: &str| {
            let table = [&self.routes, &self.models][which];
            let found = table.find(text);
            if found.is_some() || !is_proven {
                self.unproven[which].fetch_add(u64::from(found.is_none()), Relaxed);
                return found.unwrap_or_default();
            }
            table.learn(text, now).unwrap_or_else(|| self.tell(which))
        };
        let route = names.route.as_deref().map(|text| learn(0, text));
        let model = names.model.as_deref().map(|text| learn(1, text));
        let SeriesKey { route: of_route, model: of_model, .. } = &mut ledger.series;
        *of_route = route.unwrap_or(*of_route);
        *of_model = model.unwrap_or(*of_model);
        if route != Some(LabelId::OTHER) && model != Some(LabelId::OTHER) {
            ledger.new_names = None;
        }
    }

    /// Logs once that a table is full.
    #[cold]
    fn tell(&self, which: usize) -> LabelId {
        if !self.is_told[which].swap(true, Relaxed) {
            tracing::warn!(
                table = NAME_TABLES[which],
                "the table of names is full; further names are counted as other until one has been idle for metrics.idle_after"
            );
        }
        LabelId::OTHER
    }

    /// The key with `other` in place of names that gave way.
    #[must_use]
    pub fn live(&self, key: SeriesKey) -> SeriesKey {
        let live = |table: &LabelTable, id| if table.holds(id) { id } else { LabelId::OTHER };
        SeriesKey { route: live(&self.routes, key.route), model: live(&self.models, key.model), upstream: key.upstream }
    }

    /// Route, model and upstream of a series.
    #[must_use]
    pub fn texts(&self, key: SeriesKey) -> [Arc<str>; 3] {
        [self.routes.text(key.route), self.models.text(key.model), self.upstreams.text(key.upstream)]
    }

    /// Records that the names of a series are in use.
    pub fn touch(&self, key: SeriesKey, now: Stamp) {
        self.routes.touch(key.route, now);
        self.models.touch(key.model, now);
    }

    /// How many names gave way. When this has changed, holders of ids must check that theirs are still held.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.routes.evicted() + self.models.evicted()
    }

    /// For each of [`NAME_TABLES`]: how many exchanges are counted under `other` because no answer has proved their name, and how
    /// many because the table was full.
    #[must_use]
    pub fn unnamed(&self) -> [(u64, u64); 2] {
        let [route, model] = [0, 1].map(|which: usize| self.unproven[which].load(Relaxed));
        [(route, self.routes.fill().1), (model, self.models.fill().1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{NameProof, NewNames, UpstreamWindow};

    fn closed(route: &str, model: &str, status: u16) -> Ledger {
        let names = NewNames { route: Some(route.into()), model: Some(model.into()) };
        Ledger {
            new_names: Some(Box::new(names)),
            name_proof: NameProof::of_status(status),
            window: Some(UpstreamWindow::default()),
            status,
            ..Ledger::open(Stamp::default(), 0)
        }
    }

    #[test]
    fn only_answers_that_prove_names_take_room() {
        let labels = Labels::new(4, 4, 4);
        let settled = |route: &str, model: &str, status| {
            let mut ledger = closed(route, model, status);
            labels.resolve_names(&mut ledger, Stamp::now());
            let texts = (labels.routes.text(ledger.series.route), labels.models.text(ledger.series.model));
            (texts.0.to_string(), texts.1.to_string(), ledger.new_names.is_some())
        };
        let other = || "other".to_owned();
        for n in 0..300 {
            assert_eq!(settled(&format!("GET /{n}"), &format!("m{n}"), 404), (other(), other(), true));
        }
        assert_eq!(settled("POST /real", "real", 200), ("POST /real".into(), "real".into(), false));
        assert_eq!(settled("POST /real", "none", 400), ("POST /real".into(), other(), true));
        assert_eq!(settled("POST /none", "real", 0), (other(), "real".into(), true));
        assert_eq!([labels.routes.fill(), labels.models.fill()], [(1, 0), (2, 0)]);
        assert_eq!(labels.unnamed(), [(301, 0), (301, 0)]);
    }

    #[test]
    fn a_full_table_counts_what_it_does_not_take() {
        let labels = Labels::new(1, 9, 1);
        for route in ["a", "b", "b"] {
            labels.resolve_names(&mut closed(route, "m", 200), Stamp::now());
        }
        assert_eq!(labels.unnamed(), [(0, 2), (0, 0)]);
    }
}
