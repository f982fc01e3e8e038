//! What a diagnosis lacks, and how to get it.

use super::attribution::{Attribution, by_block, draw, interval, share, total};
use super::bound::{Cause, LatencyBound};
use super::part::{Part, PartSet, Parts};
use super::quantity::{Quantities, Quantity};
use super::report::Missing;
use super::samples::Samples;
use super::text::percent;
use super::verdict::Findings;
use lapwing_ledger::{Annotation, Server};

/// What is known about a series in addition to its figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidenced {
    pub(crate) requests: u64,
    /// How many requests are needed.
    pub(crate) needed: f64,
    pub(crate) server: Option<Server>,
    /// Requests above the budget that were not kept exactly.
    pub(crate) not_kept: u64,
}

fn missing(what: impl Into<String>, how: impl Into<String>) -> Missing {
    Missing { what: what.into(), how: how.into() }
}

/// What is said whatever the verdict is.
pub(crate) fn always(has_budget: bool, known: &Evidenced) -> Vec<Missing> {
    let mut list = Vec::new();
    if !has_budget {
        list.push(missing(
            "the route has no budget, so its tail is held against three times what requests of the same work usually take",
            "set metrics.budgets for the route, and time above it is explained exactly",
        ));
    }
    if known.not_kept > 0 {
        list.push(missing(
            format!("{} requests above the budget are known by a sample only", known.not_kept),
            "the slowest of each two seconds are kept exactly, as far as the memory bound allows; ask for a shorter window",
        ));
    }
    list
}

/// Too few requests.
pub(crate) fn too_few(known: &Evidenced) -> Missing {
    let what = format!("only {} requests, where {:.0} are needed", known.requests, known.needed);
    missing(what, "wait for more traffic, or ask for a longer window")
}

/// Too short a time.
pub(crate) fn too_short() -> Missing {
    missing("requests in less than six seconds of the window", "wait, or ask for a longer window")
}

/// Several routes in one series.
pub(crate) fn mixed() -> Missing {
    missing(
        "several routes or models are counted as one here",
        "raise metrics.max_series, metrics.max_routes or metrics.max_models",
    )
}

/// What would make the verdicts more exact.
pub(crate) fn of_findings(findings: &Findings, quantities: &Quantities) -> Vec<Missing> {
    let mut list = Vec::new();
    let has_cache = quantities.get(Quantity::MissRate).is_finite();
    for finding in &findings.list {
        if finding.rule.cause == Cause::Unknown && finding.claims.has(Part::Hydration) && !has_cache {
            list.push(missing(
                "how often the feature cache misses, which tells a cold cache from a slow store",
                "let the server say it: a span attribute, header or field with the hits, named in the configuration",
            ));
        }
    }
    if findings.unknown >= 0.2 {
        list.push(missing(
            format!("where {} of the time in question goes", percent(findings.unknown)),
            "see lapwing upstream-flags",
        ));
    }
    list
}

/// Why there is no verdict though the budget is exceeded.
pub(crate) fn undecided(findings: &Findings, found: &Attribution<'_>, known: &Evidenced) -> Vec<Missing> {
    let undivided = share(&found.parts, PartSet::of(&[Part::Undivided]));
    let flags = format!("lapwing upstream-flags {}", known.server.map_or("NAME", Server::name));
    let mut list = Vec::new();
    if undivided >= 0.2 {
        let server = known.server.map_or("this server", Server::title);
        let what =
            format!("{server} reports nothing of its stages, and {} of the time in question is inside it", percent(undivided));
        list.push(missing(what, format!("`{flags}` says how to turn reporting on")));
    } else if findings.unknown >= 0.2 {
        let what = format!(
            "{} of the time in question is inside the server, in stages that it does not report",
            percent(findings.unknown)
        );
        list.push(missing(what, format!("`{flags}`, or spans for these steps: docs/REPORTING.md")));
    } else {
        let first = findings.list.first().map(|first| (first.rule.bound, first));
        let what = match first {
            Some((bound, first)) => format!(
                "no cause stands out: {} explains {}, which is {} sure",
                LatencyBound::name(bound),
                percent(first.share),
                percent(first.confidence)
            ),
            None => "no cause stands out: the time in question is spread over many stages".to_owned(),
        };
        list.push(missing(what, "wait for more slow requests, or ask for a longer window"));
    }
    list
}

/// The share of all time that answers would wait for acknowledgements without help, as far as that was measured, and the interval
/// that holds it with a probability of 95 %.
pub(crate) fn lost_share(samples: &Samples<'_>) -> (f64, [f64; 2]) {
    // sums by block of time: without help and helped, each the number and the gaps; all split ones; all, and their time
    let each = samples.iter().map(|sample| {
        let seen = sample.seen;
        let is_split = seen.has(Annotation::SplitWrite) || seen.has(Annotation::Unhelped);
        let is_helped = seen.has(Annotation::QuickAck) && !seen.has(Annotation::Unhelped);
        let mut sums = Parts::default();
        if is_split {
            let at = if is_helped { 2 } else { 0 };
            (sums[at], sums[at + 1], sums[4]) = (1.0, seen.body_gap_ns(), 1.0);
        }
        (sums[5], sums[6]) = (1.0, seen.total_ns as f64);
        (*sample, sums)
    });
    let blocks = by_block(each, samples.blocks());
    let share = |sums: &Parts| {
        let saved_ns = (sums[1] / sums[0] - sums[3] / sums[2]) * sums[4] / sums[5];
        let lost = saved_ns / (sums[6] / sums[5] + saved_ns);
        if lost.is_finite() { lost.clamp(0.0, 1.0) } else { 0.0 }
    };
    (share(&total(&blocks)), interval(&draw(&blocks), share))
}
