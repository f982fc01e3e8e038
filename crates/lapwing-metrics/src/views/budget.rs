//! The latency budgets of a series as `/stats` shows them: how many requests took longer, and how fast the budget burns.

use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::Pairs;
use crate::{RouteBudget, SeriesSnapshot};

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
