//! The table: a row for each series with its rate, errors and percentiles, a bar of its stages, and its p99 over the last minute.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar::NINE_LEVELS;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::stages;
use crate::top::rows::{SeriesRow, Sort};
use crate::top::state::{Link, TopState};
use crate::units::{duration, percent};

/// Columns of a bar of stages.
const BAR: u16 = 24;
/// Columns of the line of p99: two readings each.
const LINE: u16 = 30;
/// Columns between columns.
const GAP: u16 = 1;
/// The figures' columns: rate, errors, p50, p99.
const FIGURES: [u16; 4] = [9, 8, 9, 9];
/// The fewest columns that a name is shown with before the line, and then the bar, are left out.
const NAME: u16 = 30;

/// How the columns share `width`: the name's columns, and whether there is room for a bar and a line.
fn columns(width: u16) -> (u16, bool, bool) {
    let figures = FIGURES.iter().map(|column| column + GAP).sum::<u16>();
    let left = width.saturating_sub(figures);
    let (bar, line) = (BAR + GAP, LINE + GAP);
    match left {
        _ if left >= NAME + bar + line => (left - bar - line, true, true),
        _ if left >= NAME + bar => (left - bar, true, false),
        _ => (left, false, false),
    }
}

pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut TopState, area: Rect) {
    let (name, has_bar, has_line) = columns(area.width);
    let rows = state.rows();
    if rows.is_empty() {
        let text = match (&state.link, state.filter.is_empty()) {
            (Link::Connecting, _) => "connecting …",
            (Link::Lost(_), _) => "",
            (Link::Live, true) => "no requests in the window",
            (Link::Live, false) => "no route or model with this in its name",
        };
        return frame.render_widget(Paragraph::new(text), area);
    }
    let table = rows.iter().map(|row| line(state, row, usize::from(name), has_bar, has_line));
    let mut widths = vec![Constraint::Length(name)];
    widths.extend(FIGURES.map(Constraint::Length));
    let mut heads = vec!["route, model", "req/s", "errors", "p50", "p99"];
    if has_bar {
        widths.push(Constraint::Length(BAR));
        heads.push("stages");
    }
    if has_line {
        widths.push(Constraint::Length(LINE));
        heads.push("p99, the last minute");
    }
    let sorted = match state.order.by {
        Sort::Time => "stages",
        Sort::Rate => "req/s",
        Sort::Errors => "errors",
        Sort::P50 => "p50",
        Sort::P99 => "p99",
        Sort::Name => "route, model",
    };
    let is_figure = |at: usize| (1..=FIGURES.len()).contains(&at);
    let head = heads.into_iter().enumerate().map(|(at, head)| {
        let style = if head == sorted { Style::new().add_modifier(Modifier::UNDERLINED) } else { Style::new() };
        let text = Text::styled(head, style);
        Cell::new(if is_figure(at) { text.right_aligned() } else { text })
    });
    let head = Row::new(head.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(table.collect::<Vec<_>>(), widths)
        .header(head)
        .column_spacing(GAP)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut at = std::mem::take(&mut state.table);
    frame.render_stateful_widget(table, area, &mut at);
    state.table = at;
}

fn line(state: &TopState, row: &SeriesRow<'_>, name: usize, has_bar: bool, has_line: bool) -> Row<'static> {
    let total = &row.series.total;
    let time = |ns: f64| if total.count == 0 { "-".to_owned() } else { duration(ns) };
    let errors = if row.series.errors == 0 {
        Span::raw("0")
    } else {
        Span::styled(percent(row.error_share()), Style::new().fg(Color::LightRed))
    };
    let rate = if row.rate < 99.95 { format!("{:.1}", row.rate) } else { format!("{:.0}", row.rate) };
    let mut cells = vec![Cell::new(row.title(name))];
    let figures = [Span::raw(rate), errors, Span::raw(time(total.p50_ns)), Span::raw(time(total.p99_ns))];
    cells.extend(figures.map(|figure| Cell::new(Text::from(figure).right_aligned())));
    if has_bar {
        let shares = row.series.stages.iter().filter_map(|(stage, figures)| Some((stage.as_str(), figures.share?)));
        cells.push(Cell::new(stages::bar(shares, usize::from(BAR))));
    }
    if has_line {
        cells.push(Cell::new(sparkline(&state.history(&row.key()).collect::<Vec<_>>())));
    }
    Row::new(cells)
}

/// Two readings a column, the larger of them, and the newest at the end; the highest bar is the largest of all.
fn sparkline(values: &[Option<f64>]) -> Line<'static> {
    let most = values.iter().flatten().fold(0.0, |most: f64, value| most.max(*value));
    let level = |pair: &[Option<f64>]| {
        let value =
            pair.iter().flatten().fold(None, |most: Option<f64>, value| Some(most.map_or(*value, |most| most.max(*value))));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 8")]
        value.map_or(" ", |value| {
            let step = if most > 0.0 { (value / most * 8.0).ceil().clamp(1.0, 8.0) } else { 1.0 };
            SYMBOLS[step as usize]
        })
    };
    // pairs are counted from the newest, so that what was drawn moves by a column every other reading
    let text: String = values.rchunks(2).rev().map(level).collect();
    Line::from(text)
}

const SYMBOLS: [&str; 9] = [
    NINE_LEVELS.empty,
    NINE_LEVELS.one_eighth,
    NINE_LEVELS.one_quarter,
    NINE_LEVELS.three_eighths,
    NINE_LEVELS.half,
    NINE_LEVELS.five_eighths,
    NINE_LEVELS.three_quarters,
    NINE_LEVELS.seven_eighths,
    NINE_LEVELS.full,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_grows_from_the_right() {
        let text = |values: &[Option<f64>]| sparkline(values).to_string();
        assert_eq!(text(&[Some(8.0), Some(4.0), Some(1.0)]), "█▄");
        assert_eq!(text(&[Some(4.0), Some(2.0), Some(8.0), Some(1.0)]), "▄█");
        assert_eq!(text(&[None, None, Some(0.0), None]), " ▁");
        assert_eq!(text(&[]), "");
        assert_eq!(text(&vec![Some(1.0); 60]).chars().count(), usize::from(LINE));
    }

    #[test]
    fn narrow_terminals_lose_the_line_first_and_the_bar_next() {
        assert_eq!(columns(160), (160 - 39 - 25 - 31, true, true));
        assert_eq!(columns(100), (100 - 39 - 25, true, false));
        assert_eq!(columns(80), (41, false, false));
        assert_eq!(columns(10), (0, false, false));
    }
}
