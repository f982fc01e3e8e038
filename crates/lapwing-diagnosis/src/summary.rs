//! The diagnosis of a series in a sentence or two: how its requests end, then how long they take and why.

use super::outcomes;
use super::report::{BoundVerdict, RouteDiagnosis, Status};
use super::text::{duration, percent};

/// In words; `route` is how the series is called.
pub(crate) fn of(route: &str, said: &RouteDiagnosis) -> String {
    let ended = outcomes::summary(&said.outcomes);
    let latency = if said.requests == 0 { "No request ended well.".to_owned() } else { latency(said) };
    if ended.is_empty() { format!("{route}: {latency}") } else { format!("{route}: {ended} {latency}") }
}

fn latency(said: &RouteDiagnosis) -> String {
    let measured = match &said.budget {
        Some(budget) => format!(
            "{} is {} against a budget of {}",
            budget.quantile,
            duration(budget.measured_ns as f64),
            duration(budget.limit_ns as f64)
        ),
        None => format!("p50 is {} and p99 {}", duration(said.p50_ns as f64), duration(said.p99_ns as f64)),
    };
    match said.status {
        Status::Failing => failing(said, &measured),
        Status::NotEnoughEvidence => {
            let reasons = said.missing.iter().map(|missing| format!("{}: {}", missing.what, missing.how)).collect::<Vec<_>>();
            format!("{measured}. Not enough evidence for a verdict: {}", reasons.join("; "))
        }
        Status::Healthy => {
            let also = said.verdicts.first().map_or(String::new(), |verdict| format!(" Yet {}.", verdict.sentence));
            let kept = if said.budget.is_some() { "Within budget" } else { "The tail is like the body" };
            format!("{measured}. {kept}.{also}")
        }
        Status::OverBudget => format!("{measured}.{}", blamed(said)),
        Status::SlowTail => format!(
            "{measured}. It has no budget; its slowest take more than three times what requests of their work usually take.{}",
            blamed(said)
        ),
    }
}

/// What is said about the latency of a series whose requests fail: those that ended well may be quick or slow.
fn failing(said: &RouteDiagnosis, measured: &str) -> String {
    let of = format!("Of the {} requests that ended well {measured}.", said.requests);
    if said.verdicts.is_empty() { of } else { format!("{of}{}", blamed(said)) }
}

fn blamed(said: &RouteDiagnosis) -> String {
    let Some(first) = said.verdicts.first() else { return String::new() };
    let second = said.verdicts.get(1).map_or(String::new(), |second| format!(" Then {}.", second.sentence));
    let fix = first.fixes.first().map_or(String::new(), |fix| format!(" First: {fix}."));
    format!(" {}: {}.{second}{fix}", sure(first), first.sentence)
}

/// `Queue-bound (97 % sure)`; with what else it may be.
fn sure(verdict: &BoundVerdict) -> String {
    let bound = verdict.bound.name().replace('_', "-");
    let capital: String = bound.chars().take(1).flat_map(char::to_uppercase).chain(bound.chars().skip(1)).collect();
    let doubt = verdict.doubt.as_ref().map_or_else(String::new, |doubt| format!(", because {doubt}"));
    format!("{capital}-bound ({} sure{doubt})", percent(verdict.confidence))
}
