//! What the demo says of an answer of `/stats`: its busiest series, and where figures came from.

use crate::app::stats::{Figures, Series, Stats};

impl Stats {
    /// Requests of all series, with any outcome.
    pub(crate) fn count(&self) -> u64 {
        self.series.iter().map(|s| s.count).sum()
    }

    /// Whether the time of a stage of the busiest series is known.
    pub(crate) fn has_stages(&self) -> bool {
        self.busiest().is_some_and(|series| series.stages.values().any(|figures| figures.share.is_some_and(|share| share > 0.0)))
    }

    /// The series with the most requests, because quantiles of several series cannot be combined.
    pub(crate) fn busiest(&self) -> Option<&Series> {
        self.series.iter().max_by_key(|s| s.count).filter(|s| s.count > 0)
    }
}

impl Figures {
    /// The source with the largest count, and its share in percent if it is not the only one.
    pub(crate) fn source(&self) -> String {
        let all: f64 = self.sources.values().sum();
        match self.sources.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
            Some((name, count)) if all > 0.0 && *count < all => format!("{name} {:.0} %", 100.0 * count / all),
            Some((name, _)) if all > 0.0 => name.clone(),
            _ => "-".to_owned(),
        }
    }
}
