//! The families of latency budgets. They are empty while no route has one.

use std::collections::BTreeMap;
use std::fmt;

use super::encode::{Encoder, count, family, gauge};
use super::scrape::Scrape;
use super::series::seconds;
use crate::{RouteBudget, defs};

impl Scrape {
    /// Requests over the budgets of their route, and the budgets.
    pub(crate) fn budgets(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        let name = |place: usize| RouteBudget::QUANTILES[place].0;
        family(encoder, &defs::OVER_BUDGET, |encoder| {
            for series in &self.series {
                for (place, _) in series.budget.limits() {
                    count(encoder, series.with(&[("budget", name(place))]), series.figures.over_budget[place])?;
                }
            }
            Ok(())
        })?;
        let of_routes: BTreeMap<&str, RouteBudget> = self.series.iter().map(|series| (series.route(), series.budget)).collect();
        family(encoder, &defs::BUDGET, |encoder| {
            for (route, budget) in of_routes {
                for (place, limit_ns) in budget.limits() {
                    gauge(encoder, vec![("route", route), ("budget", name(place))], seconds(limit_ns))?;
                }
            }
            Ok(())
        })
    }
}
