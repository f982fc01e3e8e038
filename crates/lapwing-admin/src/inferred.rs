//! What is inferred of series, by their names, for the surfaces that show it next to the figures of the same series: never among what
//! was reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapwing_diagnosis::InferredFigures;
use lapwing_ledger::{SeriesKey, Stamp};
use lapwing_metrics::Labels;

/// For how long what was inferred is shown again.
const KEPT_NS: u64 = 10_000_000_000;
/// How many series are inferred anew for one reader at the most: each takes some milliseconds.
const AT_ONCE: usize = 4;

/// Where what is inferred comes from.
#[derive(Clone)]
pub struct Inference {
    /// Lists the series of which something is inferred.
    pub inferable: Arc<dyn Fn() -> Vec<SeriesKey> + Send + Sync>,
    /// Infers the figures of one of them; `None` if it is gone.
    pub infer: Arc<dyn Fn(SeriesKey) -> Option<InferredFigures> + Send + Sync>,
}

/// What was inferred last of each series, and when.
#[derive(Debug, Default)]
pub(crate) struct LatestInferred(BTreeMap<SeriesKey, (Stamp, InferredFigures)>);

impl LatestInferred {
    /// Infers anew what is oldest or was not inferred yet, and forgets series of which nothing is any more.
    pub(crate) fn refreshed(&mut self, inference: &Inference, now: Stamp) -> Vec<(SeriesKey, InferredFigures)> {
        let inferable = (inference.inferable)();
        self.0.retain(|known, _| inferable.contains(known));
        let with_age = inferable.into_iter().map(|key| (self.0.get(&key).map(|(at, _)| *at), key));
        let mut due: Vec<_> = with_age.filter(|(made, _)| made.is_none_or(|at| now.since(at) >= KEPT_NS)).collect();
        due.sort_unstable();
        for (_, key) in due.into_iter().take(AT_ONCE) {
            if let Some(figures) = (inference.infer)(key) {
                self.0.insert(key, (now, figures));
            }
        }
        self.0.iter().map(|(key, (_, figures))| (*key, figures.clone())).collect()
    }
}

/// Route, model and upstream.
pub(crate) type SeriesNames = [Arc<str>; 3];

/// Inferred figures by the names of their series.
#[derive(Clone, Debug, Default)]
pub(crate) struct InferredSeries(BTreeMap<SeriesNames, InferredFigures>);

impl InferredSeries {
    /// What is inferred, without the series whose names gave way.
    pub(crate) fn of(inferred: Vec<(SeriesKey, InferredFigures)>, labels: &Labels) -> Self {
        let live = inferred.into_iter().filter(|(key, _)| labels.live(*key) == *key);
        Self(live.map(|(key, figures)| (labels.texts(key), figures)).collect())
    }

    /// Those of one series.
    pub(crate) fn get(&self, route: &Arc<str>, model: &Arc<str>, upstream: &Arc<str>) -> Option<&InferredFigures> {
        self.0.get(&[route.clone(), model.clone(), upstream.clone()])
    }

    /// All of them, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SeriesNames, &InferredFigures)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::LabelTable;

    #[test]
    fn a_few_series_are_inferred_for_each_reader_and_the_oldest_first() {
        let names = LabelTable::new(16);
        let key = |n: usize| SeriesKey { route: names.intern(&n.to_string()), ..SeriesKey::default() };
        let keys: Vec<SeriesKey> = (0..10).map(key).collect();
        let mut latest = LatestInferred::default();
        let start = Stamp::now();
        let mut read = |series: std::ops::Range<usize>, after_ms: u64| {
            let (now, listed) = (start.plus(after_ms * 1_000_000), keys[series].to_vec());
            let infer = Arc::new(|_| Some(InferredFigures::default()));
            let shown = latest.refreshed(&Inference { inferable: Arc::new(move || listed.clone()), infer }, now).len();
            (shown, latest.0.values().filter(|(at, _)| *at == now).count())
        };
        assert_eq!(read(0..10, 0), (4, 4));
        assert_eq!(read(0..10, 1), (8, 4));
        assert_eq!(read(0..10, 2), (10, 2));
        assert_eq!(read(0..10, 9_999), (10, 0));
        assert_eq!(read(0..10, 10_000), (10, 4), "those of the first reader");
        assert_eq!(read(0..10, 10_002), (10, 4), "then those of the second");
        assert_eq!(read(3..5, 10_003), (2, 0), "the others are gone");
    }
}
