//! One comparison of a target: a route, model and cost class, in figures and in words.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use lapwing_compare::ab::{LatencyReport, sentence};
use lapwing_metrics::Labels;
use lapwing_metrics::views::Pairs;
use lapwing_shadow::{CardSnapshot, PairFigure};

/// One target, route, model and cost class.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ComparisonView {
    pub(crate) route: Arc<str>,
    pub(crate) model: Option<Arc<str>>,
    /// The least amount of work in the cost class; absent if the work is unknown.
    pub(crate) class: Option<u64>,
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
    figures: Pairs<LatencyReport>,
}

impl ComparisonView {
    /// What the figures of `card` say about the target of this name.
    pub(crate) fn of(labels: &Labels, target: &str, card: CardSnapshot) -> Self {
        let model = labels.models.text(card.model);
        // the model first, because that is what a candidate changes; then the whole window
        let mut order: Vec<&(PairFigure, LatencyReport)> = card.figures.iter().collect();
        order.sort_by_key(|(figure, _)| match figure.name() {
            "forward" => 0,
            "total" => 1,
            _ => 2,
        });
        let spoken: Vec<(&str, &LatencyReport)> = order.iter().map(|(figure, report)| (figure.name(), report)).collect();
        let total = card.figures.iter().find(|(figure, _)| *figure == PairFigure::Total);
        Self {
            route: labels.routes.text(card.route),
            model: Some(model).filter(|model| !model.is_empty()),
            class: card.class.map(|class| 1 << class),
            text: sentence(target, &spoken),
            notes: total.map(|(_, report)| report.notes()).unwrap_or_default(),
            figures: card.figures.iter().map(|(figure, report)| (figure.name(), report.clone())).collect(),
        }
    }

    /// The report of the whole time at the server.
    pub(crate) fn total(&self) -> Option<&LatencyReport> {
        self.figures.0.iter().find(|(name, _)| *name == PairFigure::Total.name()).map(|(_, report)| report)
    }
}

/// A route, model and cost class in words.
pub(crate) fn place(route: &str, model: Option<&str>, class: Option<u64>) -> String {
    let model = model.map_or(String::new(), |model| format!(", model {model}"));
    let class = class.map_or(String::new(), |class| format!(", from {class} units of work"));
    format!("{route}{model}{class}")
}
