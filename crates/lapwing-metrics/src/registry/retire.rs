//! How series give way: in a full registry the one that has been idle for longest, and every series whose route or model gave way.
//! What they counted goes to one sum.

use super::Registry;
use crate::figures::Retired;
use crate::series::Series;
use lapwing_ledger::{SeriesKey, Stamp};

impl Registry {
    /// A place for a new series; `None` if all are in use and none was idle for long enough.
    pub(crate) fn free_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        if self.series.len() <= self.config.max_series {
            let place = u32::try_from(self.series.len()).ok()?;
            self.series.push(Series::new(SeriesKey::default(), Default::default(), Stamp::default()));
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

    /// Retires the series whose route or model gave way. To be called when [`Labels::evicted`](crate::Labels::evicted) has
    /// changed.
    pub fn retire_unnamed(&mut self) {
        let is_gone = |key: &SeriesKey| self.labels.live(*key) != *key;
        let gone: Vec<u32> = self.places.iter().filter(|(key, _)| is_gone(key)).map(|(_, place)| *place).collect();
        gone.into_iter().for_each(|place| self.retire(place as usize));
        let models = &self.labels.models;
        self.polled.retain(|key| models.holds(key.model));
    }

    fn retire(&mut self, place: usize) {
        let series =
            std::mem::replace(&mut self.series[place], Series::new(SeriesKey::default(), Default::default(), Stamp::default()));
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
    pub(crate) fn count_overflow(&mut self) {
        if self.overflowed == 0 {
            tracing::warn!(
                max_series = self.config.max_series,
                "all series are in use; further ones are counted as other until one has been idle for metrics.idle_after"
            );
        }
        self.overflowed += 1;
    }
}
