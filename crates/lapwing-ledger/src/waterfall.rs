//! An exchange's claims as named bars of a waterfall. Units: nanoseconds from the request's start.

use super::exchange::{Exchange, SpanNote};
use super::merge::{Claim, Placing};
use super::stage::{Phase, Source, Stage};

/// One bar of a waterfall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaterfallBar {
    /// Its name: an observed or traced span's own name, a report's stage or phase, or `upstream` for a window of
    /// which nothing was reported.
    pub name: String,
    /// The stage that the time belongs to.
    pub stage: Stage,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// Start.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// The source of the claim.
    pub source: Source,
    /// What else is to be said about a traced span.
    pub note: SpanNote,
}

/// The claims on an exchange's time as they were placed, in order of start. They may overlap and nest: the account, not this
/// list, decides who owns an instant. All lie within the total. Spans without a stage claim nothing and are left out.
#[must_use]
pub fn waterfall_bars(exchange: &Exchange) -> Vec<WaterfallBar> {
    let ledger = &exchange.ledger;
    let Placing { claims, accepted, .. } = Placing::of(ledger, &exchange.traced);
    let observed = ledger.spans.iter().map(|s| (Some(s.event.name()), SpanNote::default()));
    let traced = accepted.iter().map(|i| exchange.traced.get(*i).map_or_else(Default::default, |s| (Some(&*s.name), s.note)));
    let mut bars: Vec<WaterfallBar> = claims
        .iter()
        .zip(observed.chain(traced).chain(std::iter::repeat((None, SpanNote::default()))))
        .map(|(claim, (name, note))| WaterfallBar {
            name: name.unwrap_or_else(|| said(claim)).to_owned(),
            stage: claim.stage,
            phase: claim.phase,
            start_ns: claim.start_ns.min(ledger.total_ns),
            end_ns: claim.end_ns.max(claim.start_ns).min(ledger.total_ns),
            source: claim.source,
            note,
        })
        .collect();
    bars.sort_by_key(|b| (b.start_ns, u64::MAX - b.end_ns));
    bars
}

/// The name of a claim that has no name itself.
fn said(claim: &Claim) -> &'static str {
    claim.phase.map_or(claim.stage.name(), Phase::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, ObservedEvent, Report, ReportPlace, Span, Stamp, TracedSpan, UpstreamWindow, merge};

    #[test]
    fn every_claim_has_a_name() {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        ledger.total_ns = 100;
        ledger.window = Some(UpstreamWindow { start_ns: 10, head_ns: 90, end_ns: 90 });
        ledger.spans.push(Span { stage: Stage::Ingress, event: ObservedEvent::Request, start_ns: 0, end_ns: 10 });
        let unreported = waterfall_bars(&merge(ledger.clone(), Vec::new()));
        let names: Vec<&str> = unreported.iter().map(|b| &*b.name).collect();
        assert_eq!(names, ["request", "upstream"]);

        ledger.report(Report::of(Stage::Queue, 20, ReportPlace::Head));
        let span = |name: &str, stage| TracedSpan {
            name: name.into(),
            stage,
            phase: None,
            start_ns: 20,
            end_ns: 50,
            depth: 1,
            note: SpanNote::default(),
        };
        let traced = vec![span("serve", None), span("model", Some(Stage::Forward))];
        let bars = waterfall_bars(&merge(ledger, traced));
        let seen: Vec<_> = bars.iter().map(|b| (&*b.name, b.start_ns, b.end_ns, b.source)).collect();
        let expected =
            [("request", 0, 10, Source::Observed), ("model", 20, 50, Source::Traced), ("queue", 70, 90, Source::Reported)];
        assert_eq!(seen, expected);
    }
}
