//! How series give way: in a full registry the one that has been idle for longest, and every series whose route or model gave way.
//! What they counted goes to one sum.

use super::Registry;
use crate::ledger::SeriesKey;
use crate::metrics::figures::SeriesTotals;
use crate::metrics::series::Series;

/// What the series counted that gave way.
#[derive(Clone, Debug, Default)]
pub struct Retired {
    /// How many series.
    pub series: u64,
    /// What they counted together.
    pub totals: SeriesTotals,
}

impl Registry {
    /// A place for a new series; `None` if all are in use and none was idle for long enough.
    pub(super) fn free_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        if self.series.len() <= self.config.max_series {
            let place = u32::try_from(self.series.len()).ok()?;
            self.series.push(Series::new(SeriesKey::default()));
            return Some(place);
        }
        let now = self.calendar.last();
        if now < self.crowded_until {
            return None;
        }
        let (place, oldest) = self.series.iter().enumerate().skip(1).min_by_key(|(_, series)| series.used)?;
        self.crowded_until = oldest.used.plus(self.config.idle_after.as_nanos());
        if now < self.crowded_until {
            return None;
        }
        self.retire(place);
        self.free.pop()
    }

    /// Retires the series whose route or model gave way. To be called when [`Labels::evicted`](crate::metrics::Labels::evicted) has
    /// changed.
    pub fn retire_unnamed(&mut self) {
        let is_gone = |key: &SeriesKey| self.labels.live(*key) != *key;
        let gone: Vec<u32> = self.places.iter().filter(|(key, _)| is_gone(key)).map(|(_, place)| *place).collect();
        gone.into_iter().for_each(|place| self.retire(place as usize));
        let models = &self.labels.models;
        self.polled.retain(|key| models.holds(key.model));
    }

    fn retire(&mut self, place: usize) {
        let series = std::mem::replace(&mut self.series[place], Series::new(SeriesKey::default()));
        self.places.remove(&series.key);
        self.touched.retain(|touched| *touched as usize != place);
        self.retired.series += 1;
        self.retired.totals.merge(&series.totals());
        self.free.extend(u32::try_from(place));
    }

    /// What the series counted that gave way, since the start.
    #[must_use]
    pub const fn retired(&self) -> &Retired {
        &self.retired
    }

    /// Logs once that the registry is full.
    #[cold]
    pub(super) fn count_overflow(&mut self) {
        if self.overflowed == 0 {
            tracing::warn!(
                max_series = self.config.max_series,
                "all series are in use; further ones are counted as other until one has been idle for metrics.idle_after"
            );
        }
        self.overflowed += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ledger::{Ledger, Outcome, Stamp};
    use crate::metrics::{Config, Labels, Window};
    use crate::settings::Period;

    const SECOND: u64 = 1_000_000_000;

    fn registry(max_series: usize, max_models: usize) -> Registry {
        let config = Config { max_series, max_models, idle_after: Period::from_secs(10), ..Config::default() };
        Registry::new(config, Arc::new(Labels::bounded_by(&config, 1)), Arc::default())
    }

    fn answer(registry: &mut Registry, key: SeriesKey) {
        let ledger = Ledger { series: key, outcome: Outcome::Ok, total_ns: 7, ..Ledger::open(Stamp::default(), 0) };
        registry.record(&crate::attribution::merge(ledger, Vec::new()));
    }

    fn shown(registry: &Registry) -> Vec<(String, u64)> {
        let all = registry.series(Window::All, 0..registry.places());
        all.iter().map(|series| (series.model.to_string(), series.figures.count())).collect()
    }

    #[test]
    fn the_series_idle_for_longest_gives_way_and_stays_counted() {
        let mut registry = registry(2, 9);
        let (labels, mut now) = (registry.labels().clone(), Stamp::now());
        let mut at = |registry: &mut Registry, seconds: u64, name: &str| {
            now = now.plus(seconds * SECOND);
            registry.rotate(now);
            let model = labels.models.learn(name, now).unwrap();
            answer(registry, SeriesKey { model, ..SeriesKey::default() });
        };
        at(&mut registry, 1, "a");
        at(&mut registry, 1, "b");
        at(&mut registry, 8, "a");
        at(&mut registry, 1, "c");
        assert_eq!(shown(&registry), [("other".into(), 1), ("a".into(), 2), ("b".into(), 1)], "b was idle for 9 s");
        assert_eq!(registry.fill(), (2, 1));
        at(&mut registry, 1, "c");
        assert_eq!(shown(&registry), [("other".into(), 1), ("a".into(), 2), ("c".into(), 1)]);
        at(&mut registry, 9, "b");
        assert_eq!(shown(&registry), [("other".into(), 1), ("b".into(), 1), ("c".into(), 1)]);
        let retired = registry.retired();
        assert_eq!((retired.series, retired.totals.count()), (2, 3));
    }

    #[test]
    fn series_leave_with_their_names_and_late_exchanges_are_other() {
        let mut registry = registry(9, 2);
        let (labels, now) = (registry.labels().clone(), Stamp::now());
        let key = |name: &str, now| SeriesKey { model: labels.models.learn(name, now).unwrap(), ..SeriesKey::default() };
        let old = key("old", now);
        answer(&mut registry, old);
        registry.rotate(now.plus(SECOND));
        let new = key("new", now.plus(11 * SECOND));
        assert_eq!(labels.evicted(), 1);
        registry.retire_unnamed();
        answer(&mut registry, new);
        answer(&mut registry, old);
        assert_eq!(shown(&registry), [("other".into(), 1), ("new".into(), 1)]);
        assert_eq!((registry.retired().totals.count(), registry.fill()), (1, (1, 0)));
    }

    #[test]
    fn distinct_names_without_end_are_all_counted_in_the_room_of_a_few() {
        let mut registry = registry(4, 4);
        let (labels, mut now) = (registry.labels().clone(), Stamp::now());
        for n in 0..2_000 {
            now = now.plus(4 * SECOND);
            registry.rotate(now);
            let model = labels.models.learn(&format!("m{n}"), now).unwrap();
            registry.retire_unnamed();
            answer(&mut registry, SeriesKey { model, ..SeriesKey::default() });
        }
        let counted: u64 = shown(&registry).iter().map(|(_, count)| count).sum();
        assert_eq!(counted + registry.retired().totals.count(), 2_000);
        assert!(registry.places() <= 5 && counted <= 5);
    }
}
