//! The demo's table: one series of `/stats`, the five main stages first.
//!
//! Durations are p50, p90 and p99 of the window as the admin address gives them; nothing is computed from quantiles here.

use std::fmt::Write as _;

use lapwing_console::stats::{Figures, Series, Stats, errors};
use lapwing_console::units::{duration, percent};
use lapwing_ledger::Stage;

/// The busiest series as a table; `seconds` is the time since the start.
pub(crate) fn render(stats: &Stats, seconds: f64, window: &str) -> String {
    let Some(series) = stats.busiest() else {
        return "no requests yet\n".to_owned();
    };
    let mut out = headline(series, stats.rate(series, seconds), window);
    let others = stats.series.iter().filter(|s| s.count > 0).count() - 1;
    if others > 0 {
        let _ = writeln!(out, "({others} other series not shown)");
    }
    let _ = writeln!(out, "\n{:<15}{:>10}{:>10}{:>10}{:>9}   source", "stage", "p50", "p90", "p99", "share");
    let first = Stage::FIRST_FIVE.iter().map(|s| (s.name(), true));
    let rest = Stage::ALL.iter().filter(|s| !Stage::FIRST_FIVE.contains(s)).map(|s| (s.name(), false));
    for (stage, always) in first.chain(rest) {
        match series.stages.get(stage).filter(|f| f.count > 0) {
            Some(figures) => line(&mut out, stage, figures),
            None if always => line(&mut out, stage, &Figures::default()),
            None => {}
        }
    }
    for (stage, figures) in series.stages.iter().filter(|(s, f)| f.count > 0 && Stage::from_name(s).is_none()) {
        line(&mut out, stage, figures);
    }
    line(&mut out, "total", &series.total);
    out
}

fn headline(series: &Series, rate: f64, window: &str) -> String {
    let route = series.route.as_deref().unwrap_or("any route");
    let model = series.model.as_deref().filter(|m| !m.is_empty()).unwrap_or("not named");
    let coverage = series.coverage.map_or_else(|| "unknown".to_owned(), percent);
    let (count, errors) = (series.count, errors(series.errors));
    format!("{route}, model {model}, {window}\n{rate:.1} requests/s, {count} requests, {errors}, coverage {coverage}\n")
}

fn line(out: &mut String, stage: &str, figures: &Figures) {
    let time = |ns: f64| if figures.count == 0 { "-".to_owned() } else { duration(ns) };
    let share = figures.share.filter(|_| figures.count > 0).map_or_else(String::new, percent);
    let source = if stage == "total" { String::new() } else { figures.source() };
    let (p50, p90, p99) = (time(figures.p50_ns), time(figures.p90_ns), time(figures.p99_ns));
    let text = format!("{stage:<15}{p50:>10}{p90:>10}{p99:>10}{share:>9}   {source}");
    let _ = writeln!(out, "{}", text.trim_end());
}

#[cfg(test)]
mod tests;
