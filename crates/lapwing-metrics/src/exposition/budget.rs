//! The families of latency budgets, which are empty while no route has one, and of goodput, which are left out while no request has one.

use std::collections::BTreeMap;
use std::fmt;

use super::encode::{Encoder, count, family, gauge};
use super::scrape::Scrape;
use super::series::{ScrapedSeries, seconds};
use super::work::amount;
use crate::{BudgetMiss, GoodputTotals, RouteBudget, defs};

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
        })?;
        self.goodput(encoder)
    }

    fn goodput(&self, encoder: &mut dyn Encoder) -> fmt::Result {
        let budgeted = self.series.iter().filter_map(|series| Some((series, series.figures.goodput()?)));
        let budgeted: Vec<(&ScrapedSeries, &GoodputTotals)> = budgeted.collect();
        if budgeted.is_empty() {
            return Ok(());
        }
        family(encoder, &defs::BUDGETED, |encoder| {
            budgeted.iter().try_for_each(|(series, totals)| count(encoder, series.with(&[]), totals.requests))
        })?;
        family(encoder, &defs::GOODPUT, |encoder| {
            budgeted.iter().try_for_each(|(series, totals)| count(encoder, series.with(&[]), totals.within))
        })?;
        family(encoder, &defs::BUDGET_MISSED, |encoder| {
            for (series, totals) in &budgeted {
                for (miss, missed) in BudgetMiss::ALL.into_iter().zip(totals.missed).filter(|(_, missed)| *missed > 0) {
                    count(encoder, series.with(&[("missed", miss.name())]), missed)?;
                }
            }
            Ok(())
        })?;
        for (definition, is_within) in [(&defs::BUDGETED_UNITS, false), (&defs::GOODPUT_UNITS, true)] {
            family(encoder, definition, |encoder| {
                for (series, totals) in &budgeted {
                    for (unit, basis, (all, within)) in totals.work() {
                        let labels = series.with(&[("unit", unit.name()), ("basis", basis.name())]);
                        count(encoder, labels, amount(if is_within { within } else { all }))?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
