//! `/shadow`: what copies of requests say of each target, in words and as JSON. Durations are nanoseconds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use super::pairs::Pairs;
use super::stats::{Series, SeriesDebt, debts, series_of_copies};
use super::surfaces::{ShadowSurface, Surfaces};
use crate::ledger::CopyCause;
use crate::shadow::ab::{ASSUMPTIONS, LatencyReport, sentence};
use crate::shadow::compare::DifferencesSnapshot;
use crate::shadow::{CardSnapshot, PairFigure, QuotaOfRoute, QuotaResult, ShadowDrop};

/// The name of the requests that are copied, as a candidate against those that are not.
const COPIED: &str = "copied requests";

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct ShadowView {
    /// Requests that were sampled, by the share or by quota, and handed over.
    sampled: u64,
    /// Sampled requests of which no copy was sent, by reason.
    dropped: Pairs<u64>,
    /// What quotas took, in the order of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quotas: Vec<QuotaView>,
    /// Copies whose request's account never came.
    unpaired: u64,
    /// Pairs that were counted only, because there are too many routes, models and classes.
    overflowed: u64,
    /// When copies are sent: the primary's request always goes first.
    order: &'static str,
    /// What copies cost clients: requests that are copied against those that are not.
    contention: Vec<ComparisonView>,
    /// How much more than the optimum the upstream burns, for clients' requests whose model has one.
    debts: Vec<SeriesDebt>,
    /// The memory that copies of bodies keep alive.
    budget: BudgetView,
    assumptions: &'static str,
    targets: ComparedTargets,
}

/// The quota of a route, and what became of its requests that the share did not draw.
#[derive(Debug, Serialize)]
struct QuotaView {
    route: String,
    /// Copies a minute of each model and cost class.
    per_minute: u32,
    /// Captured, and copied.
    taken: u64,
    /// Captured, and not copied: their class had its copies, or they were not answered.
    let_go: u64,
    /// Not captured, or not copied, because the room is for requests that the share draws.
    skipped: u64,
}

/// What is known of each target.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct ComparedTargets(Vec<TargetView>);

/// How full the budget is, in bytes.
#[derive(Debug, Serialize)]
struct BudgetView {
    used: usize,
    limit: usize,
}

/// One target.
#[derive(Debug, Serialize)]
struct TargetView {
    name: String,
    address: String,
    /// Whether it is the upstream itself, asked a second time: what differs there is noise.
    is_upstream: bool,
    sent: u64,
    answered: u64,
    failed: u64,
    dropped: Pairs<u64>,
    paired: u64,
    comparisons: Vec<ComparisonView>,
    /// What outputs differ in, by route, in requests that the share drew.
    outputs: BTreeMap<String, DifferencesSnapshot>,
    /// The same of requests that quotas took: of each class so many, so that a rate over all is not that of the traffic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    outputs_by_quota: BTreeMap<String, DifferencesSnapshot>,
    /// The copies' own stages, as `/stats` has those of clients.
    series: Vec<Series>,
}

/// One target, route, model and cost class.
#[derive(Debug, Serialize)]
struct ComparisonView {
    route: Arc<str>,
    model: Option<Arc<str>>,
    /// The least amount of work in the cost class; absent if the work is unknown.
    class: Option<u64>,
    text: String,
    notes: Vec<String>,
    figures: Pairs<LatencyReport>,
}

/// What is known of each target until now, in the order of their indices.
#[must_use]
pub fn compared_targets(shadow: &ShadowSurface) -> ComparedTargets {
    let snapshots: Vec<_> = {
        let pairs = shadow.pairs.lock();
        (0..shadow.targets.len()).map(|target| pairs.target(target)).collect()
    };
    let targets = shadow.targets.iter().zip(snapshots).enumerate().filter_map(|(index, (info, snapshot))| {
        let counters = shadow.counters.target(index)?;
        let [outputs, outputs_by_quota] = {
            let outputs = shadow.outputs.lock();
            CopyCause::ALL.map(|cause| outputs.of(index, cause))
        };
        Some(TargetView {
            name: info.name.clone(),
            address: info.address.clone(),
            is_upstream: info.is_upstream,
            sent: counters.sent.load(Relaxed),
            answered: counters.answered.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            dropped: dropped(|reason| counters.dropped(reason)),
            paired: snapshot.paired,
            comparisons: snapshot.cards.into_iter().map(|card| comparison(shadow, &info.name, card)).collect(),
            outputs,
            outputs_by_quota,
            series: series_of_copies(&shadow.registry, &info.label),
        })
    });
    ComparedTargets(targets.collect())
}

/// The report of everything so far.
pub(super) fn report(surfaces: &Surfaces, shadow: &ShadowSurface) -> ShadowView {
    let targets = compared_targets(shadow);
    let (contention, unpaired, overflowed) = {
        let pairs = shadow.pairs.lock();
        (pairs.contention(), pairs.unpaired(), pairs.overflowed())
    };
    let (used, limit) = (shadow.budget)();
    ShadowView {
        sampled: shadow.counters.sampled.load(Relaxed),
        dropped: dropped(|reason| shadow.counters.dropped(reason)),
        quotas: shadow.quotas.routes().map(quota).collect(),
        unpaired,
        overflowed,
        order: shadow.order.name(),
        contention: contention.into_iter().map(|card| comparison(shadow, COPIED, card)).collect(),
        debts: debts(surfaces),
        budget: BudgetView { used, limit },
        assumptions: ASSUMPTIONS,
        targets,
    }
}

fn quota(of_route: &QuotaOfRoute) -> QuotaView {
    let [taken, let_go, skipped] = QuotaResult::ALL.map(|result| of_route.count(result));
    QuotaView { route: of_route.route.clone(), per_minute: of_route.per_minute, taken, let_go, skipped }
}

/// The reasons that occurred.
fn dropped(count: impl Fn(ShadowDrop) -> u64) -> Pairs<u64> {
    ShadowDrop::ALL.iter().map(|reason| (reason.name(), count(*reason))).filter(|(_, count)| *count > 0).collect()
}

fn comparison(shadow: &ShadowSurface, target: &str, card: CardSnapshot) -> ComparisonView {
    let model = shadow.labels.models.text(card.model);
    // the model first, because that is what a candidate changes; then the whole window
    let mut order: Vec<&(PairFigure, LatencyReport)> = card.figures.iter().collect();
    order.sort_by_key(|(figure, _)| match figure.name() {
        "forward" => 0,
        "total" => 1,
        _ => 2,
    });
    let spoken: Vec<(&str, &LatencyReport)> = order.iter().map(|(figure, report)| (figure.name(), report)).collect();
    let total = card.figures.iter().find(|(figure, _)| *figure == PairFigure::Total);
    ComparisonView {
        route: shadow.labels.routes.text(card.route),
        model: Some(model).filter(|model| !model.is_empty()),
        class: card.class.map(|class| 1 << class),
        text: sentence(target, &spoken),
        notes: total.map(|(_, report)| report.notes()).unwrap_or_default(),
        figures: card.figures.iter().map(|(figure, report)| (figure.name(), report.clone())).collect(),
    }
}

/// The report in words.
pub(super) fn text(surfaces: &Surfaces, shadow: &ShadowSurface) -> String {
    let view = report(surfaces, shadow);
    let contention: String = view.contention.iter().map(contention_in_words).collect();
    let debts: String = view.debts.iter().map(ToString::to_string).collect();
    let quotas: String = view.quotas.iter().map(quota_in_words).collect();
    let dropped = in_words(&view.dropped);
    format!("{}{contention}{debts}{} requests sampled{dropped}\n{quotas}\n{}", view.targets, view.sampled, view.assumptions)
}

fn quota_in_words(quota: &QuotaView) -> String {
    let QuotaView { route, per_minute, taken, let_go, skipped } = quota;
    let skipped = if *skipped > 0 { format!(", {skipped} skipped for lack of room") } else { String::new() };
    format!("{taken} of them by quota: {route}, {per_minute} a minute of each class; {let_go} captured and let go{skipped}\n")
}

fn contention_in_words(comparison: &ComparisonView) -> String {
    let model = comparison.model.as_deref().map_or(String::new(), |model| format!(", model {model}"));
    format!("what copies cost clients, {}{model}:\n    {}\n", comparison.route, comparison.text)
}

impl fmt::Display for ComparedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for target in &self.0 {
            let TargetView { name, address, sent, answered, failed, paired, .. } = target;
            let dropped = in_words(&target.dropped);
            writeln!(
                f,
                "{name} ({address}): {sent} copies sent, {answered} answered, {failed} failed, {paired} paired{dropped}"
            )?;
            for comparison in &target.comparisons {
                let model = comparison.model.as_deref().map_or(String::new(), |model| format!(", model {model}"));
                let class = comparison.class.map_or(String::new(), |class| format!(", from {class} units of work"));
                writeln!(f, "  {}{model}{class}\n    {}", comparison.route, comparison.text)?;
                comparison.notes.iter().try_for_each(|note| writeln!(f, "    {note}"))?;
            }
            for (outputs, cause) in [(&target.outputs, ""), (&target.outputs_by_quota, ", taken by quota")] {
                for (route, differences) in outputs.iter().filter(|(_, differences)| differences.compared > 0) {
                    let words = differences.to_string().replace('\n', "\n    ");
                    writeln!(f, "  {route}{cause}\n    {words}")?;
                }
            }
        }
        Ok(())
    }
}

/// ", dropped: 3 busy, 1 cut", or nothing.
fn in_words(dropped: &Pairs<u64>) -> String {
    let reasons: Vec<String> = dropped.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if reasons.is_empty() { String::new() } else { format!(", dropped: {}", reasons.join(", ")) }
}
