//! What is said about the way in which a series' requests end.

use super::timeline::FailedRequest;
use super::{FailureKind, OutcomeSums, exceeds_share, share_interval};
use crate::report::{FailureVerdict, RouteOutcomes};
use crate::text::{duration, percent};
use lapwing_ledger::Stamp;

/// Judges a window that ends at `now`.
///
/// A series is failing if more than the limit of its requests fail, by the lower end of the interval, and at least three or all of them
/// do. The ways in which the server's side fails count together: an upstream that restarts is unreachable, breaks off and is slow in turn.
pub(crate) fn judge(sums: &OutcomeSums, now: Stamp) -> RouteOutcomes {
    let count = |kind: FailureKind| sums.failed[kind as usize];
    let exceeds = |failed: u64, limit: f64| exceeds_share(failed, sums.ended, limit);
    let is_of_server = |kind: &FailureKind| kind.limit().is_some() && *kind != FailureKind::ClientsLeaving;
    let of_server: Vec<FailureKind> = FailureKind::ALL.into_iter().filter(is_of_server).collect();
    let together: u64 = of_server.iter().map(|kind| count(*kind)).sum();
    let limit = of_server.first().and_then(|kind| kind.limit()).unwrap_or_default();
    let is_server_failing = exceeds(together, limit);
    let is_trouble = |kind: FailureKind| match kind.limit() {
        Some(_) if of_server.contains(&kind) => is_server_failing,
        Some(limit) => exceeds(count(kind), limit),
        None => false,
    };
    let mut failures: Vec<FailureVerdict> = FailureKind::ALL
        .into_iter()
        .filter(|kind| count(*kind) > 0)
        .map(|kind| verdict(kind, sums, is_trouble(kind), now))
        .collect();
    failures.sort_by_key(|failure| (!failure.is_trouble, std::cmp::Reverse(failure.count)));
    RouteOutcomes { ended: sums.ended, well: sums.well, failures }
}

fn verdict(kind: FailureKind, sums: &OutcomeSums, is_trouble: bool, now: Stamp) -> FailureVerdict {
    let (count, of) = (sums.failed[kind as usize], sums.ended);
    let [low, high] = share_interval(count, of);
    let latest: Vec<&FailedRequest> = sums.latest.iter().filter(|failed| failed.kind == kind).collect();
    let words = kind.words();
    let mut sentence =
        format!("{}: {count} of {of} requests ({} to {}) {}", words.title, percent(low), percent(high), words.became);
    let mean_seconds = sums.seconds[kind as usize] / count.max(1) as f64;
    if let Some(status) = latest.first().map(|failed| failed.status).filter(|_| kind == FailureKind::UpstreamFailing) {
        let in_body = if status < 400 { ", the error in the body or the trailers" } else { "" };
        sentence += &format!(", of late with status {status}{in_body}");
    }
    if matches!(kind, FailureKind::ClientsLeaving | FailureKind::UpstreamTooSlow) {
        sentence += &format!(", after {} in the mean", duration(mean_seconds * 1e9));
    }
    let mut routes: Vec<&str> = latest.iter().filter_map(|failed| failed.route.as_deref()).collect();
    routes.sort_unstable();
    routes.dedup();
    if !routes.is_empty() {
        sentence += &format!("; among them {}", routes.join(", "));
    }
    FailureVerdict {
        kind,
        is_trouble,
        count,
        of,
        share: count as f64 / of.max(1) as f64,
        share_interval: [low, high],
        mean_seconds,
        latest_seconds_ago: latest.first().map(|failed| now.since(failed.at) as f64 / 1e9),
        sentence,
        fixes: words.fixes.iter().map(|fix| (*fix).to_owned()).collect(),
        exchanges: latest.iter().map(|failed| failed.trace.to_string()).collect(),
    }
}

/// The outcomes in a sentence, with the first fix; empty where nothing is to be said.
pub(crate) fn summary(outcomes: &RouteOutcomes) -> String {
    let Some(first) = outcomes.failures.first() else { return String::new() };
    let fix = first.fixes.first().filter(|_| first.is_trouble).map_or(String::new(), |fix| format!(" First: {fix}."));
    let others =
        outcomes.failures.iter().skip(1).filter(|other| other.is_trouble).map(|other| format!(" Then {}.", other.sentence));
    let others: String = others.take(2).collect();
    let capital: String =
        first.sentence.chars().take(1).flat_map(char::to_uppercase).chain(first.sentence.chars().skip(1)).collect();
    format!("{capital}.{others}{fix}")
}
