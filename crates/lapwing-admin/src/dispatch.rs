//! `/dispatch`: what is known of the queue in front of the upstreams, in words and as JSON. Durations are nanoseconds, shares 0 to 1.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use lapwing_diagnosis::{LeverAdvice, ReplayedLatencies, duration};
use lapwing_dispatch::{
    ClassCounts, DispatchLearning, DispatchMode, DispatchSnapshot, GhostReport, GhostSide, HedgeMode, NoWindow, ServiceLine,
    WaitTimes, WaitingClass, WorkSeries,
};
use lapwing_metrics::{Counter, Counters, Labels};

/// The whole report.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DispatchView {
    pub(crate) mode: DispatchMode,
    /// Whether requests wait: by the settings, or by a trial.
    pub(crate) is_on: bool,
    /// Whether upstreams are sent more for a moment, to see how many requests they work on at once.
    pub(crate) is_rechecking: bool,
    /// Requests that wait.
    pub(crate) waiting: usize,
    /// How often an upstream was left alone because it failed several times in a row.
    pub(crate) ejections: u64,
    /// How often the queue panicked: who waited was sent, and it began afresh.
    pub(crate) panics: u64,
    pub(crate) classes: Vec<DispatchClassView>,
    pub(crate) upstreams: Vec<DispatchUpstreamView>,
    /// What requests take, by route and model.
    series: Vec<ServiceLineView>,
    /// What the queue would have made of the latest requests, replayed in the order in which they came and through the queue; absent until it is known
    /// what they take.
    pub(crate) replayed: Option<ReplayView>,
    /// Second requests for those that take long; absent while there are none.
    pub(crate) hedge: Option<HedgeView>,
    /// What all requests that were sent are expected to take, second ones not counted.
    pub(crate) predicted_ns: u64,
}

/// Second requests for those that take long.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HedgeView {
    /// Whether they are sent, rather than counted only.
    pub(crate) is_on: bool,
    /// What they are expected to take, all together.
    pub(crate) hedged_ns: u64,
    /// Where the second upstream answered first.
    pub(crate) won: u64,
    /// Where the first did.
    pub(crate) lost: u64,
    /// Where both failed.
    pub(crate) failed: u64,
    /// Those that would have been sent.
    pub(crate) observed: u64,
    /// Requests that took long and were not sent again, by reason: `busy`, `budget`, `utilisation`, `unrepeatable`.
    pub(crate) withheld: BTreeMap<&'static str, u64>,
}

impl HedgeView {
    fn of(is_on: bool, hedged_ns: u64, counters: &Counters) -> Self {
        let withheld = [
            ("busy", Counter::HedgesWithheldBusy),
            ("budget", Counter::HedgesWithheldBudget),
            ("utilisation", Counter::HedgesWithheldUtilisation),
            ("unrepeatable", Counter::HedgesWithheldUnrepeatable),
        ];
        Self {
            is_on,
            hedged_ns,
            won: counters.get(Counter::HedgesWon),
            lost: counters.get(Counter::HedgesLost),
            failed: counters.get(Counter::HedgesFailed),
            observed: counters.get(Counter::HedgesObserved),
            withheld: withheld.into_iter().map(|(name, counter)| (name, counters.get(counter))).collect(),
        }
    }
}

/// What `/stats` says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct DispatchSummary {
    /// Whether requests wait: by the settings, or by a trial.
    is_on: bool,
    /// Requests that wait.
    waiting: usize,
    /// Requests that asked to be sent, and are at an upstream.
    running: usize,
    /// Upstreams that are sent nothing that can go elsewhere, because they fail or stand still.
    left_out: usize,
}

/// A class.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DispatchClassView {
    pub(crate) name: String,
    /// Requests of it that wait.
    pub(crate) waiting: usize,
    /// What those take, of one slot.
    pub(crate) waiting_work_ns: u64,
    /// Requests of it that were sent at once, since it is there.
    pub(crate) sent: u64,
    /// Those that waited.
    pub(crate) queued: u64,
    /// Those that were refused, for they would have missed their deadline.
    pub(crate) refused: u64,
    /// Of those that waited, those that could no longer meet their deadline, and were never sent.
    pub(crate) expired: u64,
    /// How long those waited in the mean that wait no longer; absent if there are none.
    mean_wait_ns: Option<u64>,
    #[serde(skip)]
    pub(crate) waits: WaitTimes,
}

/// An upstream.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DispatchUpstreamView {
    pub(crate) upstream: String,
    /// How many requests it works on at once; absent if that is not known.
    pub(crate) slots: Option<u32>,
    /// Why that is not known, so that nothing waits in front of it: `too_few_requests`, `no_waiting_seen` or `not_one_by_one`.
    pub(crate) refused: Option<&'static str>,
    /// The same in words.
    pub(crate) reason: Option<String>,
    /// How fast it works: 1 is the mean of all.
    pub(crate) speed: f64,
    /// Requests there that asked to be sent.
    pub(crate) running: usize,
    /// Whether it is sent nothing for now, because it failed several times in a row.
    pub(crate) is_ejected: bool,
    /// Whether a request has just failed there, so that others are preferred for a moment.
    pub(crate) has_just_failed: bool,
    /// Whether nothing has ended there since its oldest request took longer than 99 of 100 do, so that others are preferred.
    pub(crate) is_stalled: bool,
}

/// What requests of a series take.
#[derive(Debug, Serialize, JsonSchema)]
struct ServiceLineView {
    route: String,
    model: String,
    fixed_ns: f64,
    per_unit_ns: f64,
    samples: usize,
    /// How far times are from the line: the mean of |time / line − 1|.
    unexplained: f64,
}

/// A replay.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReplayView {
    pub(crate) requests: usize,
    pub(crate) covered_ns: u64,
    pub(crate) without: ReplaySideView,
    pub(crate) with: ReplaySideView,
    /// Requests with a deadline, by what admission would have said of them and by whether they met it.
    misses: MissesView,
}

/// Latencies of a replay.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReplaySideView {
    pub(crate) mean_ns: u64,
    pub(crate) p99_ns: u64,
    /// Of the half that asks for least.
    pub(crate) small_p99_ns: u64,
    /// Of the twentieth that asks for most.
    pub(crate) large_p99_ns: u64,
}

/// What admission foresees.
#[derive(Debug, Serialize, JsonSchema)]
struct MissesView {
    refused_rightly: u64,
    refused_wrongly: u64,
    admitted_rightly: u64,
    admitted_wrongly: u64,
}

impl From<GhostSide> for ReplaySideView {
    fn from(GhostSide { mean_ns, p99_ns, small_p99_ns, large_p99_ns }: GhostSide) -> Self {
        Self { mean_ns, p99_ns, small_p99_ns, large_p99_ns }
    }
}

impl From<GhostReport> for ReplayView {
    fn from(report: GhostReport) -> Self {
        let misses = MissesView {
            refused_rightly: report.misses.refused_rightly,
            refused_wrongly: report.misses.refused_wrongly,
            admitted_rightly: report.misses.admitted_rightly,
            admitted_wrongly: report.misses.admitted_wrongly,
        };
        let (without, with) = (report.without.into(), report.with.into());
        Self { requests: report.requests, covered_ns: report.covered_ns, without, with, misses }
    }
}

/// What waits and runs; `None` if it is off.
pub(crate) fn summary(dispatch: &Mutex<DispatchLearning>) -> Option<DispatchSummary> {
    let DispatchSnapshot { is_on, state, .. } = dispatch.lock().snapshot()?;
    let (running, left_out) = (state.running.iter().sum(), state.left_out.len());
    Some(DispatchSummary { is_on, waiting: state.waiting, running, left_out })
}

/// What the diagnosis says of it while it observes: that it would help, if the replay shows so. Where one of the upstreams batches, or it is not
/// known how many requests it works on at once, requests for it would not wait, and nothing is advised.
pub(crate) fn advice(dispatch: &Mutex<DispatchLearning>) -> Option<LeverAdvice> {
    let DispatchSnapshot { config, is_on_trial, models, labels, ghost, .. } = dispatch.lock().snapshot()?;
    let is_known = (0..labels.len()).all(|at| models.of(at).is_some_and(|one| one.slots.is_ok()));
    let ghost = ghost.filter(|_| config.mode == DispatchMode::Observe && !is_on_trial && is_known)?;
    let side = |side: GhostSide| ReplayedLatencies {
        mean_ns: side.mean_ns,
        small_p99_ns: side.small_p99_ns,
        large_p99_ns: side.large_p99_ns,
    };
    LeverAdvice::dispatch(ghost.requests as u64, ghost.covered_ns, &side(ghost.without), &side(ghost.with))
}

/// What is known until now; `None` if it is off.
pub(crate) fn view(dispatch: &Mutex<DispatchLearning>, labels: &Labels, counters: &Counters) -> Option<DispatchView> {
    let DispatchSnapshot { config, is_on, is_rechecking, models, labels: upstreams, state, ghost, hedge, .. } =
        dispatch.lock().snapshot()?;
    let class = |name: &str| {
        let known = state.classes.iter().find(|class| *class.name == *name).cloned();
        let WaitingClass { waiting, work_ns, counts, .. } = known.unwrap_or_default();
        let ClassCounts { sent, queued, refused, expired, waits } = counts;
        let (name, mean_wait_ns) = (name.to_owned(), waits.mean_ns());
        DispatchClassView { name, waiting, waiting_work_ns: work_ns, sent, queued, refused, expired, mean_wait_ns, waits }
    };
    let upstream = |(at, label)| {
        let known = models.of(at);
        let slots = known.map_or(Err(NoWindow::TooFewRequests { seen: 0, needed: 1 }), |one| one.slots);
        DispatchUpstreamView {
            upstream: labels.upstreams.text(label).to_string(),
            slots: slots.ok(),
            refused: slots.err().map(|why| why.name()),
            reason: slots.err().map(|why| why.to_string()),
            speed: known.map_or(1.0, |one| one.speed),
            running: state.running.get(at).copied().unwrap_or_default(),
            is_ejected: state.ejected.contains(at),
            has_just_failed: state.doubtful.contains(at),
            is_stalled: state.stalled.contains(at),
        }
    };
    let line = |(series, line): (&WorkSeries, &ServiceLine)| ServiceLineView {
        route: labels.routes.text(series.route).to_string(),
        model: labels.models.text(series.model).to_string(),
        fixed_ns: line.fixed_ns,
        per_unit_ns: line.per_unit_ns,
        samples: line.samples,
        unexplained: line.unexplained,
    };
    let mut series: Vec<_> = models.lines.iter().map(line).collect();
    series.sort_unstable_by(|a, b| (&a.route, &a.model).cmp(&(&b.route, &b.model)));
    Some(DispatchView {
        mode: config.mode,
        is_on,
        is_rechecking,
        waiting: state.waiting,
        ejections: state.ejections,
        panics: state.panics,
        classes: config.class_names().map(class).collect(),
        upstreams: upstreams.iter().copied().enumerate().map(upstream).collect(),
        series,
        replayed: ghost.map(ReplayView::from),
        hedge: (hedge != HedgeMode::Off).then(|| HedgeView::of(hedge == HedgeMode::On, state.hedged_ns, counters)),
        predicted_ns: state.predicted_ns,
    })
}

impl DispatchClassView {
    /// What became of its requests, if it had any.
    fn write_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, sent, queued, refused, expired, mean_wait_ns, .. } = self;
        if sent + queued + refused == 0 {
            return Ok(());
        }
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let mean = mean_wait_ns.map(|ns| format!(" ({} in the mean)", duration(ns as f64))).unwrap_or_default();
        writeln!(f, "class {name}: {sent} sent at once, {queued} waited{mean}, {expired} of them in vain, {refused} refused")
    }
}

impl fmt::Display for DispatchView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = self.upstreams.iter().filter(|one| one.slots.is_none());
        for one in unknown {
            writeln!(f, "nothing waits in front of {}: {}", one.upstream, one.reason.as_deref().unwrap_or_default())?;
        }
        for one in self.upstreams.iter().filter(|one| one.is_ejected) {
            writeln!(f, "{} has failed several times in a row, and is left alone for a moment", one.upstream)?;
        }
        for one in self.upstreams.iter().filter(|one| one.has_just_failed && !one.is_ejected) {
            writeln!(f, "{} has just failed: others are preferred for a moment", one.upstream)?;
        }
        for one in self.upstreams.iter().filter(|one| one.is_stalled) {
            writeln!(f, "{} stands still: its oldest request takes longer than 99 of 100 do, and no other ends", one.upstream)?;
        }
        match (self.is_on, self.is_rechecking) {
            (true, true) => writeln!(
                f,
                "dispatch is on; for a moment upstreams are sent more, to see how many requests they work on at once"
            )?,
            (true, false) => writeln!(f, "dispatch is on; {} waiting", requests(self.waiting))?,
            (false, _) => writeln!(f, "dispatch observes: requests pass as they come")?,
        }
        self.classes.iter().try_for_each(|class| class.write_words(f))?;
        for one in self.upstreams.iter().filter_map(|one| Some((one, one.slots?))) {
            let (DispatchUpstreamView { upstream, speed, running, .. }, slots) = one;
            writeln!(f, "{upstream}: works on {slots} at once; {running} there; speed {speed:.2}")?;
        }
        if let Some(hedge) = &self.hedge {
            let HedgeView { is_on, hedged_ns, won, lost, failed, observed, withheld } = hedge;
            let held: u64 = withheld.values().sum();
            if *is_on {
                #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
                let share = 100.0 * *hedged_ns as f64 / self.predicted_ns.max(1) as f64;
                writeln!(
                    f,
                    "second requests for those that take long: {won} answered first, {lost} too late, {failed} failed too, {held} withheld; \
                     {share:.2} % of the time"
                )?;
            } else {
                writeln!(f, "second requests for those that take long are not sent: {observed} would have been, {held} not")?;
            }
        }
        for ServiceLineView { route, model, fixed_ns, per_unit_ns, samples, unexplained } in &self.series {
            let name = if model.is_empty() { route.clone() } else { format!("{route}, model {model}") };
            let (fixed, per_unit) = (duration(*fixed_ns), duration(*per_unit_ns));
            writeln!(
                f,
                "{name}: takes {fixed}, and {per_unit} for each unit of work ({samples} requests, off by {:.0} % in the mean)",
                unexplained * 100.0
            )?;
        }
        let Some(replayed) = &self.replayed else {
            return writeln!(f, "what it would bring is not known yet");
        };
        let ReplayView { requests: count, covered_ns, without, with, misses } = replayed;
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let row = |name: &str, without: u64, with: u64| {
            let change = if without == 0 { 0.0 } else { (with as f64 / without as f64 - 1.0) * 100.0 };
            format!("  {name:<18} {:>9} {:>9}  {change:+.0} %", duration(without as f64), duration(with as f64))
        };
        #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
        let covered = duration(*covered_ns as f64);
        writeln!(f, "the latest {} ({covered}), replayed       as they came, through the queue", requests(*count))?;
        writeln!(f, "{}", row("mean", without.mean_ns, with.mean_ns))?;
        writeln!(f, "{}", row("p99", without.p99_ns, with.p99_ns))?;
        writeln!(f, "{}", row("p99 of the small", without.small_p99_ns, with.small_p99_ns))?;
        writeln!(f, "{}", row("p99 of the large", without.large_p99_ns, with.large_p99_ns))?;
        let MissesView { refused_rightly, refused_wrongly, admitted_rightly, admitted_wrongly } = misses;
        let (refused, missed) = (refused_rightly + refused_wrongly, refused_rightly + admitted_wrongly);
        if refused + missed + admitted_rightly == 0 {
            return writeln!(f, "none of them had a deadline");
        }
        writeln!(
            f,
            "{missed} of {} with a deadline missed it; admission would have refused {refused}, {refused_wrongly} of them wrongly, and {admitted_wrongly} that missed it not",
            refused + admitted_rightly + admitted_wrongly
        )
    }
}

fn requests(count: usize) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}
