//! The waterfalls of pairs whose outputs differ: both sides of each stage next to each other, as JSON and as a narrow table.
//! Offsets and durations are nanoseconds from the moment at which the last byte of the request was handed to the server.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use lapwing_ledger::WaterfallBar;
use lapwing_ledger::{Phase, Source, Stage, TraceId};
use lapwing_metrics::Labels;
use lapwing_metrics::views::Pairs;
use lapwing_shadow::{DifferingPair, SideWaterfall};

/// How many pairs of one route the text shows; JSON has all that are kept.
const SHOWN: usize = 2;
/// The width of the first column, in characters.
const NAME: usize = 24;

/// A pair whose outputs differ.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DifferingView {
    route: Arc<str>,
    model: Option<Arc<str>>,
    /// The least amount of work in the cost class; absent if the work is unknown.
    class: Option<u64>,
    /// The greatest error among its differences; absent if one is no number, as a text, a shape or a status.
    greatest_error: Option<f64>,
    /// Absent where the other side was recorded.
    primary_trace_id: Option<TraceId>,
    copy_trace_id: Option<TraceId>,
    /// Durations by figure.
    primary: Pairs<u64>,
    copy: Pairs<u64>,
    /// What happened in the upstream window, both sides in one row where both have it.
    waterfall: Vec<WaterfallRow>,
    /// Bars that found no room.
    #[serde(skip_serializing_if = "is_zero")]
    bars_left_out: usize,
}

/// A bar of either side, or one of each.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct WaterfallRow {
    name: String,
    stage: Stage,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    primary: Option<SideBar>,
    copy: Option<SideBar>,
}

/// Where a bar of one side lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
struct SideBar {
    start_ns: u64,
    duration_ns: u64,
    source: Source,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl DifferingView {
    pub(crate) fn new(pair: &DifferingPair, labels: &Labels) -> Self {
        let figures = |side: &SideWaterfall| side.figures.iter().map(|(figure, ns)| (figure.name(), *ns)).collect();
        Self {
            route: labels.routes.text(pair.route),
            model: Some(labels.models.text(pair.model)).filter(|model| !model.is_empty()),
            class: pair.class.map(|class| 1 << class),
            greatest_error: Some(pair.greatest_error).filter(|error| error.is_finite()),
            primary_trace_id: pair.primary.trace,
            copy_trace_id: pair.copy.trace,
            primary: figures(&pair.primary),
            copy: figures(&pair.copy),
            waterfall: rows(&pair.primary.bars, &pair.copy.bars),
            bars_left_out: pair.primary.bars_left_out + pair.copy.bars_left_out,
        }
    }
}

impl From<&WaterfallBar> for SideBar {
    fn from(bar: &WaterfallBar) -> Self {
        Self { start_ns: bar.start_ns, duration_ns: bar.end_ns - bar.start_ns, source: bar.source }
    }
}

/// The bars of both sides in rows: first those of the same name and stage, then those of the same stage, because two servers may
/// name their spans differently. The rest has separate rows, after the primary's.
fn rows(primary: &[WaterfallBar], copy: &[WaterfallBar]) -> Vec<WaterfallRow> {
    let row = |bar: &WaterfallBar| WaterfallRow {
        name: bar.name.clone(),
        stage: bar.stage,
        phase: bar.phase,
        primary: None,
        copy: None,
    };
    let mut rows: Vec<_> = primary.iter().map(|bar| WaterfallRow { primary: Some(bar.into()), ..row(bar) }).collect();
    let mut left: Vec<&WaterfallBar> = copy.iter().collect();
    for by_name in [true, false] {
        left.retain(|bar| {
            let is_same =
                |row: &&mut WaterfallRow| (row.stage, row.phase) == (bar.stage, bar.phase) && (row.name == bar.name || !by_name);
            let Some(row) = rows.iter_mut().filter(|row| row.copy.is_none()).find(is_same) else { return true };
            row.copy = Some((*bar).into());
            false
        });
    }
    rows.extend(left.into_iter().map(|bar| WaterfallRow { copy: Some(bar.into()), ..row(bar) }));
    rows
}

/// The pairs of one target as text, indented by two: those of each route that differ most.
pub(crate) struct Waterfalls<'v>(pub(crate) &'v [DifferingView]);

impl fmt::Display for Waterfalls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pairs in self.0.chunk_by(|a, b| a.route == b.route) {
            let Some(first) = pairs.first() else { continue };
            writeln!(f, "  {}", first.route)?;
            writeln!(f, "    outputs that differ most, in ms from the last byte sent (offset + duration)")?;
            pairs.iter().take(SHOWN).try_for_each(|pair| write!(f, "{pair}"))?;
            if pairs.len() > SHOWN {
                writeln!(f, "    {} more in the JSON of this page (differing)", pairs.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for DifferingView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self
            .greatest_error
            .map_or("a difference that is no number".to_owned(), |error| format!("greatest error {error:.3e}"));
        let trace = |trace: Option<TraceId>| trace.map_or("recorded".to_owned(), |trace| trace.to_string());
        writeln!(f, "    {error}\n    trace of the primary {}", trace(self.primary_trace_id))?;
        writeln!(f, "    trace of the copy    {}", trace(self.copy_trace_id))?;
        writeln!(f, "    {:<NAME$} {:>21} {:>21}", "", "primary", "copy")?;
        // a stage without a bar, as of a recorded answer, has a duration only
        let of = |side: &Pairs<u64>, name: &str| side.0.iter().find(|(of, _)| *of == name).map(|(_, ns)| *ns);
        let only_copy = self.copy.0.iter().filter(|(name, _)| of(&self.primary, name).is_none());
        for (name, _) in self.primary.0.iter().chain(only_copy) {
            writeln!(f, "    {name:<NAME$} {:>21} {:>21}", ms(of(&self.primary, name)), ms(of(&self.copy, name)))?;
        }
        for row in &self.waterfall {
            let name = if row.name == row.stage.name() { String::new() } else { format!(" {}", row.name) };
            let name: String = format!("· {}{name}", row.stage.name()).chars().take(NAME).collect();
            let bar = |bar: Option<SideBar>| {
                bar.map_or("-".to_owned(), |bar| format!("{} + {:>9}", ms(Some(bar.start_ns)), ms(Some(bar.duration_ns))))
            };
            writeln!(f, "    {name:<NAME$} {:>21} {:>21}", bar(row.primary), bar(row.copy))?;
        }
        Ok(())
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn ms(ns: Option<u64>) -> String {
    ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, stage: Stage, start_ns: u64, end_ns: u64) -> WaterfallBar {
        WaterfallBar {
            name: name.to_owned(),
            stage,
            phase: None,
            start_ns,
            end_ns,
            source: Source::Traced,
            note: lapwing_ledger::SpanNote::default(),
        }
    }

    #[test]
    fn stages_of_both_sides_share_a_row() {
        let primary = [bar("tokenize", Stage::Preprocessing, 0, 10), bar("model", Stage::Forward, 10, 50)];
        let copy = [bar("run", Stage::Forward, 5, 25), bar("wait", Stage::Queue, 0, 5), bar("model", Stage::Forward, 25, 30)];
        let rows = rows(&primary, &copy);
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (&*row.name, row.primary.map(|bar| bar.start_ns), row.copy.map(|bar| (bar.start_ns, bar.duration_ns))))
            .collect();
        assert_eq!(
            seen,
            [
                ("tokenize", Some(0), None),
                ("model", Some(10), Some((25, 5))), // of the same name, although another of its stage comes first
                ("run", None, Some((5, 20))),
                ("wait", None, Some((0, 5))),
            ]
        );
    }
}
