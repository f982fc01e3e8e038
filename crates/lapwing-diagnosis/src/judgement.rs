//! The diagnosis of one series: do its requests end well, is its budget kept, where does the time above it go, which rules hold, and what is
//! not known.

use super::arrivals::ArrivalPattern;
use super::attribution::{Attribution, Yardstick};
use super::evidence::{self, Evidenced};
use super::host::HostLoad;
use super::outcomes::{self, OutcomeSums};
use super::part::{PartBounds, plain_bounds};
use super::quantity::Quantities;
use super::reference::Reference;
use super::report::{BoundVerdict, MeasuredBudget, Missing, RouteDiagnosis, Status};
use super::rules::RULES;
use super::samples::Samples;
use super::stalls::Stalls;
use super::sureness::{HostDoubt, doubt_of_host, may_be_of_host};
use super::timeline::Timeline;
use super::verdict::{Finding, Findings};
use super::{notices, summary, tail};
use lapwing_ledger::{Server, Stamp};
use lapwing_metrics::RouteBudget;

/// How many requests a diagnosis needs at least; a quantile needs one beyond it.
const MIN_REQUESTS: f64 = 20.0;
/// How many are needed without a budget.
const WITHOUT_BUDGET: f64 = 100.0;
/// How many requests must have exceeded the budget.
const MIN_OVER: usize = 3;
/// How many blocks of time a diagnosis needs: 6 s with requests.
const MIN_BLOCKS: usize = 3;
/// Without a budget: a tail is unlike its body if one request in a hundred takes more than this many times what exchanges of its
/// work take, …
const TIMES_BODY: f64 = 3.0;
/// … and the 99th percentile is at least this far above the median, in nanoseconds.
const LEAST_TAIL_NS: u64 = 10_000_000;
/// How often the first verdict must come first when time is drawn again.
pub(crate) const MIN_CONFIDENCE: f64 = 0.8;
/// How many trace ids are given.
const EXCHANGES: usize = 10;

/// What a series is judged by.
#[derive(Debug)]
pub(crate) struct SeriesFigures<'a> {
    pub(crate) samples: Samples<'a>,
    /// Requests of the window that ended well, exactly.
    pub(crate) requests: u64,
    /// How all requests ended.
    pub(crate) outcomes: OutcomeSums,
    pub(crate) timeline: &'a Timeline,
    /// Where the window begins and ends.
    pub(crate) from: Stamp,
    pub(crate) now: Stamp,
    /// The machine's load in each block of time, as far as it is known.
    pub(crate) loads: Vec<Option<HostLoad>>,
    pub(crate) budget: RouteBudget,
    pub(crate) server: Option<Server>,
    /// Requests above the budget that were not kept exactly, because too many were.
    pub(crate) not_kept: u64,
    /// Whether it represents several routes or models.
    pub(crate) is_mixed: bool,
}

/// The diagnosis of a series, and what its time above the budget is to be counted under.
pub(crate) struct Judged {
    pub(crate) said: RouteDiagnosis,
    pub(crate) bounds: PartBounds,
}

/// The limit that a series is judged by, as measured.
struct Limit {
    quantile: &'static str,
    limit_ns: u64,
    measured_ns: u64,
}

impl SeriesFigures<'_> {
    /// The diagnosis, without the series' names; `route` is how it is called in the summary.
    pub(crate) fn diagnose(&self, route: &str) -> Judged {
        let samples = &self.samples;
        let (p50_ns, p99_ns) = (samples.quantile(0.5), samples.quantile(0.99));
        let reference = Reference::of(samples);
        let limit = self.limit();
        let yardstick = limit.as_ref().map_or(Yardstick::Multiple(TIMES_BODY), |limit| Yardstick::Budget(limit.limit_ns as f64));
        let found = Attribution::of(samples, &reference, yardstick);
        let over: f64 = found.culprits.iter().map(|culprit| culprit.sample.weight).sum();
        let is_over = found.culprits.len() >= MIN_OVER
            && match &limit {
                Some(limit) => limit.measured_ns > limit.limit_ns,
                None => over > 0.01 * samples.weight() && p99_ns.saturating_sub(p50_ns) >= LEAST_TAIL_NS,
            };
        let budget = limit.as_ref().map(|limit| MeasuredBudget {
            quantile: limit.quantile.to_owned(),
            limit_ns: limit.limit_ns,
            measured_ns: limit.measured_ns,
            excess_ns: found.total_ns() as u64,
        });
        let mut said = RouteDiagnosis {
            requests: self.requests,
            p50_ns,
            p99_ns,
            budget,
            tail: tail::shares(samples, &reference, is_over.then_some(&found)),
            exchanges: exchanges(samples, &found),
            ..RouteDiagnosis::default()
        };
        let arrivals = ArrivalPattern::of(self.timeline, self.from);
        let stalls = Stalls::of(&found.culprits, self.timeline, arrivals.rate);
        let quantities = Quantities::of(samples, &found, &arrivals, &stalls);
        let findings = Findings::of(&found, &quantities);
        self.conclude(&mut said, is_over, &found, &findings, &quantities);
        let is_judged = matches!(said.status, Status::OverBudget | Status::SlowTail);
        let bounds = if is_judged { findings.bounds() } else { plain_bounds() };
        said.outcomes = outcomes::judge(&self.outcomes, self.now);
        let failing = said.outcomes.failures.first().filter(|failure| failure.is_trouble);
        if let Some(failing) = failing {
            said.status = Status::Failing;
            let slow = std::mem::take(&mut said.exchanges);
            said.exchanges = failing.exchanges.iter().cloned().chain(slow).take(EXCHANGES).collect();
        }
        said.summary = summary::of(route, &said);
        Judged { said, bounds }
    }

    /// Fills in status, verdicts and what is missing.
    fn conclude(
        &self,
        said: &mut RouteDiagnosis,
        is_over: bool,
        found: &Attribution<'_>,
        findings: &Findings,
        quantities: &Quantities,
    ) {
        let (time, over) = match said.budget {
            Some(_) => ("the time above budget", Status::OverBudget),
            None => ("the time beyond the body", Status::SlowTail),
        };
        let known = Evidenced { requests: self.requests, needed: self.needed(), server: self.server, not_kept: self.not_kept };
        let mut missing = evidence::always(said.budget.is_some(), &known);
        let too_little = self.too_little(&known);
        let verdict = |finding: &Finding| finding.verdict(found, quantities, time);
        let always = findings.list.iter().filter(|finding| finding.rule.is_always);
        if !too_little.is_empty() {
            (said.status, said.missing) = (Status::NotEnoughEvidence, too_little);
            return;
        }
        said.notices = notices::find(quantities);
        if !is_over {
            let lost = RULES.iter().filter(|rule| rule.is_always && rule.holds(quantities, &found.parts));
            let lost = lost.map(|rule| {
                let (share, share_interval) = evidence::lost_share(&self.samples);
                let verdict = Finding { rule, claims: rule.claims, share, confidence: 1.0 }.verdict(found, quantities, time);
                BoundVerdict { share_interval, ..verdict }
            });
            said.verdicts = lost.collect();
            (said.status, said.missing) = (Status::Healthy, missing);
            return;
        }
        let first = findings.list.first();
        let is_sure = |confidence: f64| confidence >= MIN_CONFIDENCE;
        let doubt = first.filter(|first| may_be_of_host(first.rule.bound, first.rule.cause));
        let doubt = doubt.and_then(|_| doubt_of_host(found, &self.loads));
        let (most, why) = doubt.as_ref().map_or((1.0, ""), |doubt| (doubt.most, doubt.why));
        missing.splice(0..0, doubt.map(|HostDoubt { said, .. }| said));
        let stands_out = |first: &&Finding| is_sure(first.confidence) && first.share > findings.unknown;
        if first.filter(stands_out).is_none() {
            said.status = Status::NotEnoughEvidence;
            said.verdicts = always.map(verdict).collect();
            missing.extend(evidence::undecided(findings, found, &known));
            said.missing = missing;
            return;
        }
        said.verdicts = findings.list.iter().map(verdict).collect();
        for verdict in said.verdicts.iter_mut().filter(|verdict| may_be_of_host(verdict.bound, verdict.cause)) {
            verdict.doubt = (most < verdict.confidence).then(|| why.to_owned());
            verdict.confidence = verdict.confidence.min(most);
        }
        if is_sure(said.verdicts.first().map_or(0.0, |first| first.confidence)) {
            said.status = over;
        } else {
            (said.status, said.verdicts) = (Status::NotEnoughEvidence, always.map(verdict).collect());
        }
        missing.extend(evidence::of_findings(findings, quantities));
        said.missing = missing;
    }

    fn too_little(&self, known: &Evidenced) -> Vec<Missing> {
        let mut missing = Vec::new();
        if self.is_mixed {
            missing.push(evidence::mixed());
        }
        if (self.requests as f64) < known.needed {
            missing.push(evidence::too_few(known));
        } else if self.samples.blocks() < MIN_BLOCKS {
            missing.push(evidence::too_short());
        }
        missing
    }

    /// How many requests are needed.
    fn needed(&self) -> f64 {
        let quantiles = self.budget.limits().map(|(place, _)| 1.0 / RouteBudget::QUANTILES[place].1);
        // one budget that can be judged is enough; without any, the 99th percentile is
        quantiles.reduce(f64::min).unwrap_or(WITHOUT_BUDGET).max(MIN_REQUESTS)
    }

    /// The budget that is exceeded most of those that have enough requests; if none is exceeded, the one that is nearest to it.
    fn limit(&self) -> Option<Limit> {
        let enough = |place: usize| self.requests as f64 * RouteBudget::QUANTILES[place].1 >= 1.0;
        let limits = self.budget.limits().filter(|(place, _)| enough(*place)).map(|(place, limit_ns)| {
            let (quantile, beyond) = RouteBudget::QUANTILES[place];
            Limit { quantile, limit_ns, measured_ns: self.samples.quantile(1.0 - beyond) }
        });
        let ratio = |limit: &Limit| limit.measured_ns as f64 / limit.limit_ns.max(1) as f64;
        limits.max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }
}

/// The traces of the slowest exchanges in question, else of the slowest of all.
fn exchanges(samples: &Samples<'_>, found: &Attribution<'_>) -> Vec<String> {
    let slowest = found.culprits.iter().rev().map(|culprit| culprit.sample.seen.trace);
    let all = samples.iter().rev().map(|sample| sample.seen.trace);
    let traces =
        if found.culprits.is_empty() { all.take(EXCHANGES).collect() } else { slowest.take(EXCHANGES).collect::<Vec<_>>() };
    traces.iter().map(ToString::to_string).collect()
}
