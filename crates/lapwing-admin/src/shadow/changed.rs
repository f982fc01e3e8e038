//! Which routes, models and cost classes of a target changed: of many comparisons those whose evidence is strong enough together.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::comparison::{ComparisonView, place};
use lapwing_compare::ab::{CHANGED_ROUTES_CLAIM, LatencyReport, changed_routes};

/// What changed at one target.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedView {
    /// How many routes, models and classes were examined.
    of: usize,
    /// Those that changed, strongest first.
    named: Vec<ChangedRoute>,
    claim: &'static str,
}

/// A route, model and cost class whose total changed.
#[derive(Debug, Serialize, JsonSchema)]
struct ChangedRoute {
    route: Arc<str>,
    model: Option<Arc<str>>,
    class: Option<u64>,
    /// The direction: `faster` if more than half of the pairs are, else `slower`.
    direction: &'static str,
    wins: u64,
    losses: u64,
    /// The median of the ratios within pairs.
    paired_p50: Option<f64>,
    /// The natural logarithm of the e-value.
    log_e_value: f64,
}

impl ChangedView {
    /// Of the comparisons of one target, by their totals.
    pub(crate) fn of(comparisons: &[ComparisonView]) -> Self {
        let evidence: Vec<Option<f64>> =
            comparisons.iter().map(|comparison| comparison.total().and_then(|total| total.log_e_value)).collect();
        let named = changed_routes(&evidence).into_iter().filter_map(|at| ChangedRoute::of(comparisons.get(at)?));
        Self { of: comparisons.len(), named: named.collect(), claim: CHANGED_ROUTES_CLAIM }
    }
}

impl ChangedRoute {
    fn of(comparison: &ComparisonView) -> Option<Self> {
        let total: &LatencyReport = comparison.total()?;
        Some(Self {
            route: comparison.route.clone(),
            model: comparison.model.clone(),
            class: comparison.class,
            direction: if total.wins > total.losses { "faster" } else { "slower" },
            wins: total.wins,
            losses: total.losses,
            paired_p50: total.paired_ratio.p50.value,
            log_e_value: total.log_e_value?,
        })
    }
}

impl fmt::Display for ChangedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // of one comparison its own verdict says it all
        if self.of < 2 {
            return Ok(());
        }
        let Self { of, named, claim } = self;
        if named.is_empty() {
            return writeln!(f, "  of {of} routes, models and classes none is known to have changed in its total");
        }
        writeln!(f, "  changed in total, strongest first: {} of {of} routes, models and classes; {claim}", named.len())?;
        for ChangedRoute { route, model, class, direction, wins, losses, .. } in named {
            let place = place(route, model.as_deref(), *class);
            writeln!(f, "    {place}: {direction}, {wins} pairs faster, {losses} slower")?;
        }
        Ok(())
    }
}
