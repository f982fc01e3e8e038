//! An answer of `/stats` as a table: a block for each series, its rate, outcomes and coverage, and a row for each measure that occurred.

use std::fmt::Write;

use super::answer::{ClassFigures, DebtFigures, Figures, GoodputFigures, PolledFigures, PolledMean, Series, Stats, UnitFigures};
use crate::inferred::inferred_words;
use crate::printable::printable;
use crate::table::{TableRow, heading, series_title};
use crate::units::{duration, duration_ps, percent};
use lapwing_diagnosis::share_interval;
use lapwing_ledger::{Phase, Stage};

/// The columns of a unit's or a measure's name, and of an optimum's.
const NAME: usize = 60;

/// The whole table.
pub(crate) fn table(stats: &Stats) -> String {
    let mut out = String::new();
    let mut series: Vec<&Series> = stats.series.iter().collect();
    // what fails first, then the most time: that is where to look
    series.sort_by(|a, b| b.is_failing().cmp(&a.is_failing()).then_with(|| time(b).total_cmp(&time(a))));
    for series in series {
        block(&mut out, series, stats.rate(series, f64::INFINITY));
    }
    if stats.series.is_empty() {
        let _ = writeln!(out, "no requests in the window {}", printable(&stats.window, NAME));
    }
    if stats.profiler.dropped > 0 {
        let _ =
            writeln!(out, "{} profiles were dropped since the start: these requests are in no figure", stats.profiler.dropped);
    }
    out
}

/// The time that all answered requests took.
fn time(series: &Series) -> f64 {
    series.total.count as f64 * series.total.mean_ns
}

fn block(out: &mut String, series: &Series, rate: f64) {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    let _ = writeln!(out, "{}", series_title(&text(&series.route), &text(&series.model), &text(&series.upstream)));
    if series.is_failing() {
        let failed = series.failed_by_server();
        let [low, high] = share_interval(failed, series.count).map(percent);
        let _ =
            writeln!(out, "  FAILING: {failed} of {} requests fail ({low} to {high}); lapwing diagnose says why", series.count);
    }
    let outcomes: Vec<String> =
        series.outcomes.iter().map(|(outcome, count)| format!("{count} {}", printable(outcome, NAME))).collect();
    let coverage = series.coverage.map_or_else(|| "unknown".to_owned(), percent);
    let (count, outcomes) = (series.count, outcomes.join(", "));
    let _ = writeln!(out, "  {rate:.1} requests/s; {count} requests: {outcomes}; coverage {coverage}");
    for (quantile, budget) in &series.budget {
        let (limit, quantile) = (duration(budget.limit_ns), printable(quantile, NAME));
        let (over, of, burn) = (budget.over, budget.requests, budget.burn_rate);
        let _ = writeln!(out, "  budget {quantile} {limit}: {over} of {of} took longer, burn rate {burn:.2}");
    }
    goodput(out, series);
    let _ = writeln!(out, "{}", heading());
    for row in rows(series) {
        let _ = writeln!(out, "{row}");
    }
    if let Some(DebtFigures { optimum, .. }) = &series.computational_debt {
        let _ = writeln!(out, "  computational_debt is relative to: {}", printable(optimum, 3 * NAME));
    }
    if let Some(fitted) = series.fitted() {
        let _ = writeln!(out, "  inferred, not reported: {}", inferred_words(fitted));
    }
    if let Some(said) = series.polled.as_ref().and_then(polled) {
        let _ = writeln!(out, "  {said}");
    }
    out.push('\n');
}

/// What the server counted: means over all its requests, which are no rows among measured ones.
fn polled(of: &PolledFigures) -> Option<String> {
    let stages = Stage::ALL.map(Stage::name).into_iter().filter_map(|name| Some((name, of.stages.get(name)?)));
    let phases = Phase::ALL.map(Phase::name).into_iter().filter_map(|name| Some((name, of.phases.get(name)?)));
    let mean = |(name, of): (&str, &PolledMean)| format!("{name} {} in the mean of {}", duration(of.mean_ns), of.count);
    let means: Vec<String> = stages.chain(phases).map(mean).collect();
    (!means.is_empty()).then(|| format!("counted by the server, over all its requests: {}", means.join(", ")))
}

fn goodput(out: &mut String, series: &Series) {
    let Some(GoodputFigures { requests, within, share: Some(share), missed }) = &series.goodput else { return };
    let _ = write!(out, "  goodput {}: {within} of {requests} were within their budget", percent(*share));
    for (at, (name, count)) in missed.iter().enumerate() {
        let _ = write!(out, "{} {count} {}", if at == 0 { "; missed:" } else { "," }, printable(name, NAME));
    }
    out.push('\n');
}

/// The rows of a series: what did not occur has none.
fn rows(series: &Series) -> Vec<TableRow> {
    let mut rows = Vec::new();
    let mut add = |name: &str, figures: &Figures, share: Option<f64>| rows.extend(timed(name, figures, share));
    add("total", &series.total, None);
    let known = Stage::ALL.map(Stage::name);
    let stages = known.into_iter().filter_map(|name| Some((name, series.stages.get(name)?)));
    let others = series.stages.iter().map(|(name, figures)| (name.as_str(), figures)).filter(|(name, _)| !known.contains(name));
    stages.chain(others).for_each(|(name, figures)| add(name, figures, figures.share));
    Phase::ALL
        .into_iter()
        .filter_map(|phase| series.phases.get(phase.name()).map(|f| (phase.name(), f)))
        .for_each(|(name, figures)| add(name, figures, figures.share));
    if let Some(first) = &series.first_byte {
        add("first_byte", first, None);
    }
    let generation = series.generation.iter().flatten().filter_map(|(name, figures)| Some((name, figures.as_ref()?)));
    generation.for_each(|(name, figures)| add(name, figures, None));
    add("cached", &series.cached, None);
    add("cancelled", &series.cancelled, None);
    add("failed", &series.failed, None);
    add("stream", &series.streams, None);
    for ClassFigures { from, to, unit, total } in &series.classes {
        let range = to.map_or_else(
            || format!("{from} and more"),
            |to| if to == *from { format!("{from}") } else { format!("{from} to {to}") },
        );
        rows.extend(timed(&format!("class of {range} {unit}"), total, None));
    }
    rows.extend(series.per_unit.iter().filter(|(_, of)| of.count > 0).map(|(name, of)| per_unit(name, of)));
    rows.extend(series.computational_debt.as_ref().and_then(debt));
    rows
}

fn timed(name: &str, figures: &Figures, share: Option<f64>) -> Option<TableRow> {
    let Figures { count, mean_ns, p50_ns, p90_ns, p99_ns, max_ns, .. } = *figures;
    let values = [mean_ns, p50_ns, p90_ns, p99_ns, max_ns].map(duration);
    (count > 0).then(|| TableRow { name: printable(name, NAME), count, share, values })
}

fn per_unit(name: &str, figures: &UnitFigures) -> TableRow {
    let UnitFigures { unit, count, mean_ps, p50_ps, p90_ps, p99_ps, max_ps } = figures;
    let values = [*mean_ps, *p50_ps, *p90_ps, *p99_ps, *max_ps].map(duration_ps);
    TableRow { name: printable(&format!("{name} per {unit}"), NAME), count: *count, share: None, values }
}

fn debt(debt: &DebtFigures) -> Option<TableRow> {
    let ratio = debt.ratio.as_ref()?;
    let values = [ratio.mean, ratio.p50, ratio.p90, ratio.p99, ratio.max].map(|ratio| format!("{ratio:.2}×"));
    Some(TableRow { name: "computational_debt".to_owned(), count: ratio.count, share: None, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Stats {
        let of = |value: f64| serde_json::json!({"value": value, "low": value / 2.0, "high": value * 1.5});
        serde_json::from_value(serde_json::json!({
            "window": "10s", "covered_ns": 10_000_000_000_u64, "profiler": {"dropped": 3},
            "series": [
                {"route": "GET /quiet", "upstream": "u", "count": 1, "total": {"count": 1, "mean_ns": 1}},
                {"route": "POST /v2", "model": "m\u{1b}[2J", "upstream": "http://u", "count": 120, "errors": 1,
                 "outcomes": {"ok": 119, "timeout": 1}, "coverage": 0.981,
                 "total": {"count": 119, "mean_ns": 2e6, "p50_ns": 1.5e6, "p90_ns": 3e6, "p99_ns": 9e6, "max_ns": 12e6},
                 "stages": {"forward": {"count": 119, "mean_ns": 1e6, "p50_ns": 1e6, "share": 0.5},
                            "warp": {"count": 2, "share": 0.25}, "ingress": {"count": 119, "mean_ns": 1e3, "share": 0.01}},
                 "cached": {"count": 30, "mean_ns": 2e4, "p50_ns": 2e4}, "cancelled": {"count": 0},
                 "first_byte": null,
                 "generation": {"first_token": {"count": 4, "p50_ns": 5e6}, "inter_token": null, "output_tokens_per_s": {"p50": 1.5}},
                 "classes": [{"class": 3, "from": 8, "to": 15, "unit": "row", "count": 7, "p50_ns": 1e3},
                             {"class": 0, "from": 1, "to": 1, "unit": "row", "count": 7},
                             {"class": 31, "from": 64, "to": null, "unit": "row", "count": 7}],
                 "per_unit": {"forward": {"unit": "row", "count": 119, "p50_ps": 640}},
                 "inferred": {"source": "inferred", "refused": null, "fitted": {"requests": 9, "unit": "row", "queue": null,
                    "forward": {"mean_ns": of(2e6), "p50_ns": of(2e6), "p99_ns": of(2e6)}, "fixed_ns": of(2e6), "per_unit_ns": of(2e6),
                    "unexplained_mean_ns": 0, "per_ahead_ns": null, "slots": null, "slots_interval": null,
                    "unexplained_share": 0.0, "outlier_share": 0.0}},
                 "polled": {"polls": 2, "stages": {"forward": {"count": 5, "sum_ns": 280e6, "mean_ns": 56e6}, "queue": {"count": 5, "mean_ns": 8e5}},
                            "phases": {"decode": {"count": 5, "mean_ns": 48e6}}},
                 "budget": {"p99": {"limit_ns": 200e6, "requests": 120, "over": 3, "burn_rate": 2.5}},
                 "goodput": {"requests": 80, "within": 78, "share": 0.975, "missed": {"failed": 1, "total": 1}, "work": []},
                 "computational_debt": {"optimum": "this machine", "ratio": {"count": 9, "mean": 3.25, "p50": 3.0, "max": 9.5}}}
            ]
        }))
        .unwrap()
    }

    #[test]
    fn a_series_has_its_head_and_a_row_for_what_occurred() {
        let table = table(&answer());
        let (first, second) = table.split_once("\n\n").unwrap();
        assert!(second.starts_with("GET /quiet (u)\n  0.1 requests/s; 1 requests: ; coverage unknown\n"), "{second}");
        assert!(second.ends_with("\n3 profiles were dropped since the start: these requests are in no figure\n"), "{second}");
        let lines: Vec<&str> = first.lines().collect();
        assert_eq!(lines[0], "POST /v2, model m\\u{1b}[2J (http://u)");
        assert_eq!(lines[1], "  12.0 requests/s; 120 requests: 119 ok, 1 timeout; coverage 98.1 %");
        assert_eq!(lines[2], "  budget p99 200 ms: 3 of 120 took longer, burn rate 2.50");
        assert_eq!(lines[3], "  goodput 97.5 %: 78 of 80 were within their budget; missed: 1 failed, 1 total");
        let [.., debt, inferred, polled] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(*debt, "  computational_debt is relative to: this machine");
        assert_eq!(*inferred, "  inferred, not reported: forward 2.00 ms (1.00 ms to 3.00 ms) in the mean, queue no wait seen");
        let means = "queue 800 µs in the mean of 5, forward 56.0 ms in the mean of 5, decode 48.0 ms in the mean of 5";
        assert_eq!(*polled, format!("  counted by the server, over all its requests: {means}"));
        let names: Vec<&str> = lines[5..lines.len() - 3].iter().map(|line| line[2..44].trim_end()).collect();
        let wanted = [
            "total",
            "ingress",
            "forward",
            "warp",
            "first_token",
            "cached",
            "class of 8 to 15 row",
            "class of 1 row",
            "class of 64 and more row",
            "forward per row",
            "computational_debt",
        ];
        assert_eq!(names, wanted);
        assert!(lines[7].ends_with("119  50.0 %   1.00 ms   1.00 ms      0 ns      0 ns      0 ns"), "{}", lines[7]);
        assert!(first.contains("640 ps") && first.contains("3.25×"), "{first}");
        assert!(!table.contains('\x1b'));
    }

    #[test]
    fn what_fails_comes_first_and_says_so() {
        let series = serde_json::json!([
            {"route": "GET /slow", "upstream": "u", "count": 9, "outcomes": {"ok": 9}, "total": {"count": 9, "mean_ns": 9e9}},
            {"route": "GET /dead", "upstream": "u", "count": 40, "errors": 40, "outcomes": {"unreachable": 40}},
            {"route": "GET /odd", "upstream": "u", "count": 40, "errors": 40, "outcomes": {"client_error": 40}}
        ]);
        let table = table(&serde_json::from_value(serde_json::json!({"series": series})).unwrap());
        let wanted = "GET /dead (u)\n  FAILING: 40 of 40 requests fail (91.2 % to 100.0 %); lapwing diagnose says why\n";
        assert!(table.starts_with(wanted) && table.matches("FAILING").count() == 1, "{table}");
    }

    #[test]
    fn an_empty_answer_says_so() {
        assert_eq!(table(&Stats { window: "1m".to_owned(), ..Stats::default() }), "no requests in the window 1m\n");
        assert_eq!(table(&serde_json::from_str("{}").unwrap()), "no requests in the window \n");
        let other: Stats = serde_json::from_str(r#"{"series": [{"inferred": {"by": "another version"}}]}"#).unwrap();
        assert!(!table(&other).contains("inferred"));
    }
}
