//! A diagnosis in words, for `/diagnosis` and `lapwing diagnose`. It takes at most 2 MiB, and nothing in it moves the cursor of a terminal.

use std::fmt::Write;

use crate::inferred::inferred_words;
use crate::printable::printable;
use crate::table::series_title;
use crate::units::{duration, percent};
use lapwing_diagnosis::{
    BoundVerdict, Diagnosis, Evidence, FailureVerdict, FittedValue, HostLoad, InferredStages, LeverAdvice, Missing, Notice,
    RouteDiagnosis, RouteOutcomes, Status, TailShare, TcpState, TelemetryGap,
};

/// The most routes; the ones that lost most time come first.
pub(crate) const ROUTES: usize = 32;
/// The most verdicts of a route.
const VERDICTS: usize = 4;
/// The most entries of each other list of a route or a verdict.
const ENTRIES: usize = 8;
/// The most exchanges of a route.
const EXCHANGES: usize = 3;
/// The columns of a sentence, and of a name or a figure.
const SENTENCE: usize = 500;
const NAME: usize = 100;

/// The whole diagnosis.
pub fn words(diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    let window = duration(diagnosis.window_seconds * 1e9);
    missing(&mut out, &diagnosis.missing);
    levers(&mut out, &diagnosis.levers);
    if diagnosis.routes.is_empty() {
        let _ = writeln!(out, "not enough evidence: no request of this kind in the last {window}");
    }
    for (place, route) in diagnosis.routes.iter().take(ROUTES).enumerate() {
        if place > 0 {
            out.push('\n');
        }
        describe(&mut out, route);
    }
    if let Some(states) = &diagnosis.connections {
        for (side, state) in [("clients", &states.clients), ("upstream", &states.upstream)] {
            connections(&mut out, side, state.as_ref().filter(|state| state.sockets > 0));
        }
    }
    if !diagnosis.routes.is_empty() {
        host(&mut out, diagnosis.host.as_ref());
    }
    if let Some(more @ 1..) = diagnosis.routes.len().checked_sub(ROUTES) {
        let _ = writeln!(out, "\n{more} more routes lost less time; as JSON they are all there");
    }
    out
}

/// What does not arrive: first, because all other figures lack it.
fn missing(out: &mut String, missing: &[TelemetryGap]) {
    for TelemetryGap { sentence, change, .. } in missing.iter().take(ENTRIES) {
        let _ = writeln!(out, "missing: {}", printable(sentence, SENTENCE));
        let _ = writeln!(out, "  change: {}", printable(change, SENTENCE));
    }
    if !missing.is_empty() {
        out.push('\n');
    }
}

/// What would help, whatever the routes.
fn levers(out: &mut String, levers: &[LeverAdvice]) {
    for LeverAdvice { sentence, change, .. } in levers.iter().take(ENTRIES) {
        let _ = writeln!(out, "{}: {}", printable(sentence, SENTENCE), printable(change, SENTENCE));
    }
    if !levers.is_empty() {
        out.push('\n');
    }
}

/// How the requests of a route ended, if any did not end well.
fn outcomes(out: &mut String, outcomes: &RouteOutcomes) {
    for failure in outcomes.failures.iter().take(ENTRIES) {
        let FailureVerdict { is_trouble, latest_seconds_ago, sentence, fixes, exchanges, .. } = failure;
        let latest = latest_seconds_ago.map_or_else(String::new, |ago| format!("; the latest {} ago", duration(ago * 1e9)));
        let mark = if *is_trouble { "!" } else { "-" };
        let _ = writeln!(out, "  {mark} {}{latest}", printable(sentence, SENTENCE));
        if !is_trouble {
            continue;
        }
        for (place, fix) in fixes.iter().take(ENTRIES).enumerate() {
            let _ = writeln!(out, "     {}: {}", if place == 0 { "first" } else { "then" }, printable(fix, SENTENCE));
        }
        for trace in exchanges.iter().take(1) {
            let _ = writeln!(out, "     see /exchanges?trace_id={}", printable(trace, NAME));
        }
    }
}

/// How busy the machine was.
fn host(out: &mut String, host: Option<&HostLoad>) {
    let Some(HostLoad { busy_share, steal_share, pressure_share }) = host else { return };
    let [busy, steal] = [*busy_share, *steal_share].map(percent);
    let pressure = pressure_share.map_or_else(
        || "the kernel does not count how often a process waited for one (no PSI)".to_owned(),
        |share| format!("in {} of the time some process waited for one", percent(share)),
    );
    let _ = writeln!(out, "\nprocessors of this machine: {busy} busy, {steal} taken by the hypervisor; {pressure}");
}

/// What the kernel says about one side's connections.
fn connections(out: &mut String, side: &str, state: Option<&TcpState>) {
    let Some(state) = state else { return };
    let [least, median, slowest] = [state.least_rtt_p50_ns, state.rtt_p50_ns, state.rtt_p99_ns].map(ns);
    let [again, receiver, congestion] =
        [state.retransmitted_share, state.receive_window_limited_share, state.congestion_limited_share].map(percent);
    let _ = writeln!(
        out,
        "\nconnections, {side}: {} open, round trip at the least {least}, p50 {median}, p99 {slowest}; sent again {again} of bytes; of the time with something to \
         send {receiver} waited for the reader and {congestion} for the network",
        state.sockets
    );
}

/// What is inferred where the upstream reports nothing, and how much more it can take.
fn inferred(out: &mut String, route: &RouteDiagnosis) {
    if let Some(InferredStages { fitted: Some(fitted), .. }) = &route.inferred {
        let _ = writeln!(out, "  inferred, not reported: {}", inferred_words(fitted));
    }
    if let Some(InferredStages { refused: Some(refused), .. }) = &route.inferred {
        let _ = writeln!(
            out,
            "  nothing inferred: {}; {}",
            printable(&refused.sentence, SENTENCE),
            printable(&refused.help, SENTENCE)
        );
    }
    let Some(capacity) = &route.capacity else { return };
    if let Some(FittedValue { value, low, high }) = capacity.rate_at_budget {
        let _ = writeln!(
            out,
            "  estimated by {}: utilisation {}, the budget is crossed at {} requests/s ({} to {}), now {}; with one more replica {}",
            printable(&capacity.model, NAME),
            percent(capacity.utilisation.value),
            digits(value),
            digits(low),
            digits(high),
            digits(capacity.rate_now),
            duration(capacity.with_one_more_replica_ns)
        );
    }
    if let Some(refused) = &capacity.refused {
        let _ = writeln!(
            out,
            "  no estimate of its capacity: {}; {}",
            printable(&refused.sentence, SENTENCE),
            printable(&refused.help, SENTENCE)
        );
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Healthy => "healthy",
        Status::Failing => "failing",
        Status::OverBudget => "over budget",
        Status::SlowTail => "slow tail (no budget; held against three times what requests of the same work usually take)",
        Status::NotEnoughEvidence => "not enough evidence",
    }
}

fn describe(out: &mut String, route: &RouteDiagnosis) {
    let title = series_title(&route.route, &route.model, &route.upstream);
    let _ = writeln!(out, "{title}: {}", status(route.status));
    outcomes(out, &route.outcomes);
    let [p50, p99] = [route.p50_ns, route.p99_ns].map(ns);
    if route.requests == 0 {
        let _ = write!(out, "  no request ended well");
    } else {
        let well = if route.outcomes.failures.is_empty() { "" } else { " ended well" };
        let _ = write!(out, "  {} requests{well}, p50 {p50}, p99 {p99}", route.requests);
    }
    if let Some(budget) = &route.budget {
        let [limit, measured, excess] = [budget.limit_ns, budget.measured_ns, budget.excess_ns].map(ns);
        let quantile = printable(&budget.quantile, NAME);
        let _ = write!(out, "; budget {quantile} {limit}, measured {measured}, {excess} above it in all");
    }
    out.push('\n');
    // a summary of outcomes repeats the lines above
    if !route.summary.is_empty() && route.status != Status::Failing {
        let _ = writeln!(out, "  {}", printable(&route.summary, SENTENCE));
    }
    for (place, verdict) in route.verdicts.iter().take(VERDICTS).enumerate() {
        explain(out, place + 1, verdict, if route.status == Status::Failing { "" } else { &route.summary });
    }
    inferred(out, route);
    for Notice { sentence, fixes, .. } in route.notices.iter().take(ENTRIES) {
        let fix = fixes.first().map_or("", String::as_str);
        let _ = writeln!(out, "  also: {}: {}", printable(sentence, SENTENCE), printable(fix, SENTENCE));
    }
    for Missing { what, how } in route.missing.iter().take(ENTRIES) {
        let _ = writeln!(out, "  not known: {}; {}", printable(what, SENTENCE), printable(how, SENTENCE));
    }
    if route.status == Status::OverBudget || !route.verdicts.is_empty() {
        tail(out, &route.tail);
        if route.status == Status::Failing {
            return;
        }
        for trace in route.exchanges.iter().take(EXCHANGES) {
            let _ = writeln!(out, "  see /exchanges?trace_id={}", printable(trace, NAME));
        }
    }
}

fn explain(out: &mut String, number: usize, verdict: &BoundVerdict, summary: &str) {
    let BoundVerdict { bound, cause, share, share_interval: [low, high], confidence, doubt, sentence, evidence, fixes, rule } =
        verdict;
    let doubt = doubt.as_ref().map_or_else(String::new, |doubt| format!(", because {}", printable(doubt, NAME)));
    let [share, low, high, confidence] = [*share, *low, *high, *confidence].map(percent);
    let _ = writeln!(
        out,
        "  {number}. {}: {share} of the time in question ({low} to {high}), confidence {confidence}{doubt}; rule {}",
        bound.words(*cause),
        printable(rule, NAME)
    );
    if !summary.contains(sentence.as_str()) {
        let _ = writeln!(out, "     {}", printable(sentence, SENTENCE));
    }
    for Evidence { what, value, unit, threshold } in evidence.iter().take(ENTRIES) {
        let threshold = threshold.map(|threshold| format!(", held against {}", quantity(threshold, unit))).unwrap_or_default();
        let _ = writeln!(out, "     - {}: {}{threshold}", printable(what, SENTENCE), quantity(*value, unit));
    }
    for (place, fix) in fixes.iter().take(ENTRIES).enumerate() {
        let _ = writeln!(out, "     {}: {}", if place == 0 { "first" } else { "then" }, printable(fix, SENTENCE));
    }
}

/// What each stage takes, the one that explains most of the excess first. Stages that take as long in the tail are left out.
fn tail(out: &mut String, tail: &[TailShare]) {
    let mut rows: Vec<&TailShare> = tail.iter().filter(|of| of.share_of_excess >= 0.01).collect();
    rows.sort_by(|a, b| b.share_of_excess.total_cmp(&a.share_of_excess));
    for TailShare { stage, body_ns, tail_ns, share_of_excess, excess_interval: [low, high], .. } in rows.into_iter().take(ENTRIES)
    {
        let [share, low, high] = [*share_of_excess, *low, *high].map(percent);
        let [body, tail] = [*body_ns, *tail_ns].map(duration);
        let stage = printable(stage, NAME);
        let _ = writeln!(
            out,
            "  {stage:<16} {body:>8} around the median, {tail:>8} in the tail: {share} of the excess ({low} to {high})"
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn ns(ns: u64) -> String {
    duration(ns as f64)
}

/// A value with its unit: times as times, shares in percent, all else with three digits.
fn quantity(value: f64, unit: &str) -> String {
    match unit {
        _ if !value.is_finite() => "not known".to_owned(),
        "seconds" if value < 0.0 => format!("-{}", duration(-value * 1e9)),
        "seconds" => duration(value * 1e9),
        "ratio" if (0.0..=1.0).contains(&value) => percent(value),
        "ratio" => format!("{}×", digits(value)),
        unit => format!("{} {}", digits(value), printable(unit, NAME)),
    }
}

/// Whole from a hundred on, else with two decimals unless they are zero.
fn digits(value: f64) -> String {
    if value.abs() >= 100.0 || (value - value.round()).abs() < 0.005 { format!("{value:.0}") } else { format!("{value:.2}") }
}
