//! The latency budgets of a series as `/stats` shows them: how many requests took longer, and how fast the budget burns; and the goodput of
//! its requests.

use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::Pairs;
use crate::{BudgetMiss, GoodputTotals, RouteBudget, SeriesSnapshot};
use lapwing_ledger::{Basis, Unit};

/// One budget in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BudgetView {
    limit_ns: u64,
    requests: u64,
    over: u64,
    burn_rate: f64,
}

/// The budgets of the series' route, by quantile.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
pub(crate) fn budgets(series: &SeriesSnapshot) -> Pairs<BudgetView> {
    let requests = series.figures.requests();
    let budget = |(place, limit_ns): (usize, u64)| {
        let ((name, allowed), over) = (RouteBudget::QUANTILES[place], series.figures.over_budget[place]);
        let burn_rate = if requests == 0 { 0.0 } else { over as f64 / requests as f64 / allowed };
        (name, BudgetView { limit_ns, requests, over, burn_rate })
    };
    series.budget.limits().map(budget).collect()
}

/// What was answered without an error and within its budget, of the requests that had one.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Goodput")]
pub(crate) struct GoodputView {
    requests: u64,
    within: u64,
    share: Option<f64>,
    missed: Pairs<u64>,
    work: Vec<GoodputWork>,
}

/// Work in one unit whose amount is known in one way.
#[derive(Debug, Serialize, JsonSchema)]
struct GoodputWork {
    unit: Unit,
    basis: Basis,
    amount: u128,
    within: u128,
}

impl GoodputView {
    /// `None` if no request had a budget.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn of(series: &SeriesSnapshot) -> Option<Self> {
        let totals: &GoodputTotals = series.figures.goodput()?;
        let missed = BudgetMiss::ALL.into_iter().zip(totals.missed).map(|(miss, missed)| (miss.name(), missed));
        let work = totals.work().map(|(unit, basis, (amount, within))| GoodputWork { unit, basis, amount, within });
        Some(Self {
            requests: totals.requests,
            within: totals.within,
            share: (totals.requests > 0).then(|| totals.within as f64 / totals.requests as f64),
            missed: missed.filter(|(_, missed)| *missed > 0).collect(),
            work: work.collect(),
        })
    }
}
