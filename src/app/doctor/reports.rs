//! Whether the upstream's reports arrive, whether its clocks agree with ours, and what else is missing of the figures.

use super::check::DoctorReport;
use super::running::{DoctorExchange, RunningFigures};
use lapwing_diagnosis::{GapCause, TelemetryGap};

/// From this share of requests with stages that the server reported on, reports arrive.
const ARRIVE: f64 = 0.95;
/// Of so many spans, one that is moved says nothing of its clock,
const FEW_MOVED: usize = 10;
/// nor do moves of less, in nanoseconds.
const LEAST_SHIFT_NS: u64 = 1_000_000;
/// What says why no report arrives.
const SILENT: [GapCause; 4] = [GapCause::NothingReported, GapCause::NoSpans, GapCause::TracingOff, GapCause::TraceSamplingOff];

pub(crate) fn check(running: &RunningFigures, report: &mut DoctorReport) {
    let (reported, answered) = running
        .stats
        .series
        .iter()
        .fold((0, 0), |(reported, answered), series| (reported + series.reported(), answered + series.total.count));
    arrive(reported, answered, &running.missing, report);
    clocks(&running.exchanges, report);
    // that of certificates has a line of its own
    let others = running.missing.iter().filter(|gap| !SILENT.contains(&gap.cause) && gap.cause != GapCause::CertificateExpires);
    for gap in others {
        report.note(gap.cause.name(), &gap.sentence, &gap.change);
    }
}

fn arrive(reported: u64, answered: u64, missing: &[TelemetryGap], report: &mut DoctorReport) {
    const NAME: &str = "reports";
    if answered == 0 {
        return report.note(NAME, "no request was answered yet", "send one to the address `listen`, as clients do");
    }
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let share = reported as f64 / answered as f64;
    let found = format!("{reported} of {answered} answered requests have stages that the server reported");
    if share >= ARRIVE {
        return report.ok(NAME, found);
    }
    if reported > 0 {
        let advice = "see which lack them: `lapwing stats` by route, sources in /exchanges; those of a server's start may come before its reports";
        return report.note(NAME, found, advice);
    }
    let why = missing.iter().find(|gap| SILENT.contains(&gap.cause)).map(|gap| gap.change.clone());
    let otherwise =
        "lapwing upstream-flags NAME says what a server reports and how it is turned on, docs/REPORTING.md how a handler does";
    report.note(NAME, found, why.unwrap_or_else(|| otherwise.to_owned()));
}

fn clocks(exchanges: &[DoctorExchange], report: &mut DoctorReport) {
    const NAME: &str = "clocks";
    let spans = || exchanges.iter().flat_map(|exchange| &exchange.spans).filter(|span| span.source == "traced");
    let mut shifts: Vec<i64> = spans().filter_map(|span| span.shifted_ns).collect();
    let count = spans().count();
    if count == 0 {
        return report.ok(NAME, "no span came of the latest requests, so none has another clock");
    }
    shifts.sort_unstable_by_key(|shift| shift.unsigned_abs());
    let middle_ns = shifts.get(shifts.len() / 2).map_or(0, |shift| shift.unsigned_abs());
    // a span that ends a moment after the response is moved too: another clock moves many, and by more
    if shifts.len() * FEW_MOVED < count || middle_ns < LEAST_SHIFT_NS {
        return report.ok(NAME, format!("{count} spans of the latest requests lie within them"));
    }
    #[allow(clippy::cast_precision_loss, reason = "a time for people")]
    let middle = lapwing_console::units::duration(middle_ns as f64);
    report.note(
        NAME,
        format!(
            "{} of {count} spans of the latest requests were moved, by {middle} at the median: their clock is another",
            shifts.len()
        ),
        "set the clocks of both machines by NTP (chronyc tracking, timedatectl); times inside the server stay right",
    );
}

#[cfg(test)]
mod tests {
    use super::super::running::PlacedSpan;
    use super::*;

    #[test]
    fn missing_reports_are_noted_with_their_cause() {
        let gap = TelemetryGap {
            cause: GapCause::NothingReported,
            sentence: "nothing".to_owned(),
            count: 1,
            of: None,
            change: "turn it on".to_owned(),
        };
        let advice = |reported, answered, missing: &[TelemetryGap]| {
            let mut report = DoctorReport::default();
            arrive(reported, answered, missing, &mut report);
            assert!(!report.is_wrong());
            report.checks.remove(0).advice
        };
        assert_eq!(advice(96, 100, &[]), None);
        assert_eq!(advice(0, 100, &[gap]).as_deref(), Some("turn it on"));
        assert!(advice(0, 100, &[]).unwrap().contains("upstream-flags"));
        assert!(advice(50, 100, &[]).unwrap().contains("/exchanges"));
        assert!(advice(0, 0, &[]).unwrap().contains("listen"));
    }

    #[test]
    fn spans_that_were_moved_show_another_clock() {
        let found = |shifts: &[Option<i64>]| {
            let span = |shifted_ns: &Option<i64>| PlacedSpan { source: "traced".to_owned(), shifted_ns: *shifted_ns };
            let mut report = DoctorReport::default();
            clocks(&[DoctorExchange { spans: shifts.iter().map(span).collect() }], &mut report);
            let check = report.checks.remove(0);
            (check.found, check.advice.is_some())
        };
        assert!(!found(&[]).1);
        assert_eq!(found(&[None, None]), ("2 spans of the latest requests lie within them".to_owned(), false));
        assert!(!found(&[Some(100_000), None]).1);
        let mut few = [None; 20];
        few[0] = Some(5_000_000);
        assert!(!found(&few).1);
        let (text, is_noted) = found(&[Some(-5_000_000), None, Some(-5_000_000)]);
        assert!(is_noted && text.starts_with("2 of 3 spans") && text.contains("5.00 ms"), "{text}");
    }
}
