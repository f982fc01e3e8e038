//! `/shadow`: what copies of requests say about each target, in words and as JSON. Durations are nanoseconds.
//!
//! - `changed`: which of many routes changed;
//! - `comparison`: a route, model and cost class of a target;
//! - `routes`: why requests are not copied that could have been;
//! - `waterfalls`: both sides of the pairs that differ most, next to each other.

mod changed;
pub(crate) mod comparison;
mod routes;
mod waterfalls;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use schemars::JsonSchema;
use serde::Serialize;

use self::changed::ChangedView;
use self::comparison::{ComparisonView, place};
use self::routes::RouteView;
use self::waterfalls::{DifferingView, Waterfalls};
use super::stats::{Series, SeriesDebt, debts, series_of_copies};
use super::surfaces::Surfaces;
use lapwing_compare::ab::ASSUMPTIONS;
use lapwing_compare::outputs::{DifferencesSnapshot, OutputsVerdict};
use lapwing_ledger::CopyCause;
use lapwing_metrics::views::Pairs;
use lapwing_shadow::{QuotaOfRoute, QuotaResult, ShadowDrop, ShadowSurface};

/// The name of the requests that are copied, as a candidate against those that are not.
const COPIED: &str = "copied requests";

/// The whole report.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShadowView {
    /// Requests that were sampled, by the share or by quota, and handed over.
    sampled: u64,
    /// Sampled requests of which no copy was sent, by reason.
    dropped: Pairs<u64>,
    /// What quotas took, in the order of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quotas: Vec<QuotaView>,
    /// What was learnt of routes: only those that are repeatable are copied, and those that `shadow.routes` names.
    routes: Vec<RouteView>,
    /// Copies whose request's account never came.
    unpaired: u64,
    /// Pairs that were counted only, because there are too many routes, models and classes.
    overflowed: u64,
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
#[derive(Debug, Serialize, JsonSchema)]
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

/// What is known about each target.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ComparedTargets(Vec<TargetView>);

/// How full the budget is, in bytes.
#[derive(Debug, Serialize, JsonSchema)]
struct BudgetView {
    used: usize,
    limit: usize,
}

/// One target.
#[derive(Debug, Serialize, JsonSchema)]
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
    /// Which side of a pair goes first, in all figures of this target.
    order: &'static str,
    #[serde(skip)]
    order_in_words: &'static str,
    /// Which of the comparisons changed.
    changed: ChangedView,
    comparisons: Vec<ComparisonView>,
    /// What outputs differ in, by route, in requests that the share drew.
    outputs: BTreeMap<String, DifferencesSnapshot>,
    /// The same for requests that quotas took: a number of each class, so a rate over all is not that of the traffic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    outputs_by_quota: BTreeMap<String, DifferencesSnapshot>,
    /// The kept samples that are not shown, because the client may not read payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_withheld: Option<SamplesWithheld>,
    /// The pairs whose outputs differ most, with both waterfalls.
    differing: Vec<DifferingView>,
    /// The copies' own stages, as `/stats` has those of clients.
    series: Vec<Series>,
}

/// Samples that are not shown.
#[derive(Debug, Serialize, JsonSchema)]
struct SamplesWithheld {
    count: usize,
    reason: &'static str,
}

/// What is known about each target until now, in the order of their indices. `payloads` is why kept samples are not shown, if so.
#[must_use]
pub fn compared_targets(shadow: &ShadowSurface, payloads: Result<(), &'static str>) -> ComparedTargets {
    let snapshots: Vec<_> = {
        let pairs = shadow.pairs.lock();
        (0..shadow.targets.len()).map(|target| (pairs.target(target), pairs.differing(target))).collect()
    };
    let targets = shadow.targets.iter().zip(snapshots).enumerate().filter_map(|(index, (info, (snapshot, differing)))| {
        let counters = shadow.counters.target(index)?;
        let comparisons: Vec<_> =
            snapshot.cards.into_iter().map(|card| ComparisonView::of(&shadow.labels, &info.name, card)).collect();
        let [mut outputs, mut outputs_by_quota] = {
            let outputs = shadow.outputs.lock();
            CopyCause::ALL.map(|cause| outputs.of(index, cause))
        };
        let all = outputs.values_mut().chain(outputs_by_quota.values_mut());
        let samples_withheld = payloads.err().and_then(|reason| withhold_samples(all, reason));
        Some(TargetView {
            name: info.name.clone(),
            address: info.address.clone(),
            is_upstream: info.is_upstream,
            sent: counters.sent.load(Relaxed),
            answered: counters.answered.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            dropped: dropped(|reason| counters.dropped(reason)),
            paired: snapshot.paired,
            order: shadow.order.name(),
            order_in_words: shadow.order.in_words(),
            changed: ChangedView::of(&comparisons),
            comparisons,
            outputs,
            outputs_by_quota,
            samples_withheld,
            // what the upstream's own answers differ in is noise
            differing: differing
                .iter()
                .filter(|_| !info.is_upstream)
                .map(|pair| DifferingView::new(pair, &shadow.labels))
                .collect(),
            series: series_of_copies(&shadow.registry, &info.label),
        })
    });
    ComparedTargets(targets.collect())
}

/// Takes the samples out. Returns what became of them, if there were any.
fn withhold_samples<'a>(
    outputs: impl Iterator<Item = &'a mut DifferencesSnapshot>,
    reason: &'static str,
) -> Option<SamplesWithheld> {
    let count = outputs.map(|outputs| std::mem::take(&mut outputs.samples).len()).sum();
    (count > 0).then_some(SamplesWithheld { count, reason })
}

/// The report of everything so far. `payloads` is why kept samples are not shown, if so.
pub(crate) fn report(surfaces: &Surfaces, shadow: &ShadowSurface, payloads: Result<(), &'static str>) -> ShadowView {
    let targets = compared_targets(shadow, payloads);
    let (contention, unpaired, overflowed) = {
        let pairs = shadow.pairs.lock();
        (pairs.contention(), pairs.unpaired(), pairs.overflowed())
    };
    let (used, limit) = (shadow.budget)();
    ShadowView {
        sampled: shadow.counters.sampled.load(Relaxed),
        dropped: dropped(|reason| shadow.counters.dropped(reason)),
        quotas: shadow.quotas.routes().map(quota).collect(),
        routes: (shadow.routes)().into_iter().map(RouteView::from).collect(),
        unpaired,
        overflowed,
        contention: contention.into_iter().map(|card| ComparisonView::of(&shadow.labels, COPIED, card)).collect(),
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

/// The report in words, which have no payloads.
pub(crate) fn text(surfaces: &Surfaces, shadow: &ShadowSurface) -> String {
    let view = report(surfaces, shadow, Ok(()));
    let contention: String = view.contention.iter().map(contention_in_words).collect();
    let debts: String = view.debts.iter().map(ToString::to_string).collect();
    let quotas: String = view.quotas.iter().map(quota_in_words).collect();
    let dropped = in_words(&view.dropped);
    let routes = routes::in_words(&view.routes, |reason| shadow.counters.dropped(reason));
    let ShadowView { targets, sampled, assumptions, .. } = &view;
    format!("{targets}{contention}{debts}{sampled} requests sampled{dropped}\n{quotas}{routes}\n{assumptions}")
}

fn quota_in_words(quota: &QuotaView) -> String {
    let QuotaView { route, per_minute, taken, let_go, skipped } = quota;
    let skipped = if *skipped > 0 { format!(", {skipped} skipped for lack of room") } else { String::new() };
    format!("{taken} of them by quota: {route}, {per_minute} a minute of each class; {let_go} captured and let go{skipped}\n")
}

fn contention_in_words(comparison: &ComparisonView) -> String {
    let place = place(&comparison.route, comparison.model.as_deref(), None);
    format!("what copies cost clients, {place}:\n    {}\n", comparison.text)
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
            writeln!(f, "  {}", target.order_in_words)?;
            write!(f, "{}", target.changed)?;
            for comparison in &target.comparisons {
                let place = place(&comparison.route, comparison.model.as_deref(), comparison.class);
                writeln!(f, "  {place}\n    {}", comparison.text)?;
                comparison.notes.iter().try_for_each(|note| writeln!(f, "    {note}"))?;
            }
            for (outputs, cause) in [(&target.outputs, ""), (&target.outputs_by_quota, ", taken by quota")] {
                for (route, differences) in
                    outputs.iter().filter(|(_, differences)| differences.verdict != OutputsVerdict::NothingCompared)
                {
                    let words = differences.to_string().replace('\n', "\n    ");
                    writeln!(f, "  {route}{cause}\n    {words}")?;
                }
            }
            write!(f, "{}", Waterfalls(&target.differing))?;
        }
        Ok(())
    }
}

/// ", dropped: 3 busy, 1 cut", or nothing.
fn in_words(dropped: &Pairs<u64>) -> String {
    let reasons: Vec<String> = dropped.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if reasons.is_empty() { String::new() } else { format!(", dropped: {}", reasons.join(", ")) }
}
