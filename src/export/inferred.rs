//! The inferred stages of series whose upstream reports nothing, by the series' names, for the surfaces that show them beside the
//! figures of the same series: never among what was reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::surfaces::Surfaces;
use crate::diagnosis::InferredStages;
use crate::ledger::Stamp;

/// Route, model and upstream.
type SeriesNames = [Arc<str>; 3];

/// Inferred stages by the names of their series.
#[derive(Clone, Debug, Default)]
pub(super) struct InferredSeries(BTreeMap<SeriesNames, InferredStages>);

impl InferredSeries {
    /// What the diagnosis infers, at most ten seconds old; `None` where it is off.
    pub(super) fn of(surfaces: &Surfaces) -> Option<Self> {
        let diagnosis = surfaces.diagnosis.as_ref()?;
        let labels = surfaces.registry.lock().labels().clone();
        let inferred = diagnosis.inferred(Stamp::now());
        let named = inferred.iter().filter(|(key, _)| labels.live(*key) == *key).map(|(key, stages)| {
            let names = [labels.routes.text(key.route), labels.models.text(key.model), labels.upstreams.text(key.upstream)];
            (names, stages.clone())
        });
        Some(Self(named.collect()))
    }

    /// Those of one series.
    pub(super) fn get(&self, route: &Arc<str>, model: &Arc<str>, upstream: &Arc<str>) -> Option<&InferredStages> {
        self.0.get(&[route.clone(), model.clone(), upstream.clone()])
    }

    /// All of them, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SeriesNames, &InferredStages)> {
        self.0.iter()
    }
}
