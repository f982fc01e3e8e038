//! The families of the diagnosis: time above the budgets, by what is to blame. They are absent where nothing is diagnosed, and empty
//! while no route has a budget.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use lapwing_diagnosis::{BoundTotals, LatencyBound};
use lapwing_metrics::defs;
use lapwing_metrics::exposition::{Encoder, SampleLabels, ScrapedSeries, count, family};

/// Route, model and upstream.
type Names = [Arc<str>; 3];

/// Time above the budgets of the series that have one.
#[derive(Debug, Default)]
pub(crate) struct BudgetExcess(Vec<(Names, ExcessOfSeries)>);

#[derive(Debug, Default)]
struct ExcessOfSeries {
    /// In seconds, in the order of [`LatencyBound::ALL`].
    by_bound: [f64; LatencyBound::ALL.len()],
    /// Of all requests that took longer, in seconds.
    all: f64,
    /// When the series began, if it is among those of the scrape.
    since_unix_ns: Option<u64>,
}

impl BudgetExcess {
    /// With the names of `labels`. Series whose names gave way add up as `other`.
    pub(crate) fn of(totals: Vec<BoundTotals>, labels: &lapwing_metrics::Labels, all: &[ScrapedSeries]) -> Self {
        let mut by_names: BTreeMap<Names, ExcessOfSeries> = BTreeMap::new();
        for BoundTotals { series, bound_seconds, excess_seconds } in totals {
            let of = by_names.entry(labels.texts(labels.live(series))).or_default();
            of.by_bound.iter_mut().zip(bound_seconds).for_each(|(sum, seconds)| *sum += seconds);
            of.all += excess_seconds;
        }
        for series in all {
            if let Some(of) = by_names.get_mut(&series.names()) {
                of.since_unix_ns = Some(series.since_unix_ns);
            }
        }
        Self(by_names.into_iter().collect())
    }

    /// Time above the budgets, by bound and in all.
    pub(crate) fn encode(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        let Self(all) = self;
        family(encoder, &defs::BOUND_SECONDS, |encoder| {
            // from the first excess on there are all bounds, so that a rate sees the beginning of each
            for (names, of) in all.iter().filter(|(_, of)| of.all > 0.0) {
                for (bound, seconds) in LatencyBound::ALL.into_iter().zip(of.by_bound) {
                    count(encoder, of.labels(names, Some(("bound", bound.name()))), seconds)?;
                }
            }
            Ok(())
        })?;
        family(encoder, &defs::BUDGET_EXCESS, |encoder| {
            all.iter().try_for_each(|(names, of)| count(encoder, of.labels(names, None), of.all))
        })
    }
}

impl ExcessOfSeries {
    fn labels<'a>(&self, [route, model, upstream]: &'a Names, own: Option<(&'static str, &'a str)>) -> SampleLabels<'a> {
        let pairs: [(&'static str, &'a str); 3] = [("route", route), ("model", model), ("upstream", upstream)];
        SampleLabels { pairs: pairs.into_iter().chain(own).collect(), since_unix_ns: self.since_unix_ns }
    }
}
