//! The slowest requests of a row: a bar of stages, and each reported span where it was placed in time.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::stages;
use crate::printable::{printable, width};
use crate::top::slowest::{PlacedSpan, SlowRequest};
use crate::top::state::Requests;
use crate::units::{duration, percent};

/// Columns of a span's name, of its duration and of its source.
const NAME: usize = 28;
const TIME: usize = 9;
const SOURCE: usize = 12;

pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, title: &str, requests: &Requests, at: usize, scrolled: usize) {
    let block = Block::bordered().title(format!(" slowest: {} ", printable(title, usize::from(area.width).saturating_sub(16))));
    let inner = block.inner(area);
    let lines = match requests {
        Requests::Asked => vec![Line::raw("asking …")],
        Requests::Failed(reason) => vec![Line::raw(reason.clone())],
        Requests::Known(requests) => match requests.get(at) {
            None => vec![Line::raw("none is kept: the slowest of the last ten minutes are")],
            Some(request) => request_lines(request, (at, requests.len()), usize::from(inner.width)),
        },
    };
    let most = lines.len().saturating_sub(usize::from(inner.height));
    let down = u16::try_from(scrolled.min(most)).unwrap_or(u16::MAX);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).scroll((down, 0)).block(block), area);
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn request_lines(request: &SlowRequest, (at, of): (usize, usize), columns: usize) -> Vec<Line<'static>> {
    let SlowRequest { trace_id, started_at, status, outcome, served_by, total_ns, stages: parts, spans } = request;
    let status = status.map_or_else(|| "no status".to_owned(), |status| format!("status {status}"));
    let (outcome, started) = (printable(outcome, 40), printable(started_at, 40));
    let by = match served_by.as_str() {
        "" | "upstream" => String::new(),
        by => format!(", by {}", printable(by, 20)),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let total = (*total_ns).max(1) as f64;
    let mut lines = vec![
        Line::styled(format!("{} of {of}  {}  {outcome}, {status}{by}  {started}", at + 1, duration(*total_ns as f64)), bold),
        Line::raw(format!("trace {}", printable(trace_id, 40))),
        Line::raw(""),
        stages::bar(parts.iter().map(|part| (part.stage.as_str(), part.ns as f64 / total)), columns),
        Line::raw(""),
    ];
    lines.extend(spans.iter().map(|span| span_line(span, *total_ns, columns)));
    if !spans.is_empty() {
        lines.push(Line::raw(""));
    }
    for part in parts {
        let (stage, source) = (printable(&part.stage, NAME - 2), printable(&part.source, SOURCE));
        let (time, share) = (duration(part.ns as f64), percent(part.ns as f64 / total));
        let text = format!(" {stage:<width$}{time:>TIME$} {share:>8}  {source}", width = NAME - 2);
        lines.push(Line::from_iter([stages::block(&part.stage, 1), Span::raw(text)]));
    }
    lines
}

/// A span: its name, a bar where it was, its duration and source.
fn span_line(span: &PlacedSpan, total_ns: u64, columns: usize) -> Line<'static> {
    let cells = columns.saturating_sub(NAME + TIME + SOURCE + 2).max(4) as u128;
    let total = u128::from(total_ns.max(1));
    let cell = |ns: u64| u128::from(ns).min(total) * cells / total;
    let (from, to, cells) = (cell(span.start_ns).min(cells - 1) as usize, cell(span.end_ns) as usize, cells as usize);
    let length = to.saturating_sub(from).max(1);
    let name = printable(&span.name, NAME - 1);
    let pad = " ".repeat(NAME - width(&name) + from);
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let time = duration(span.end_ns.saturating_sub(span.start_ns) as f64);
    let behind = format!("{}{time:>TIME$}  {}", " ".repeat(cells - from - length), printable(&span.source, SOURCE));
    Line::from_iter([Span::raw(name + &pad), stages::block(&span.stage, length), Span::raw(behind)])
}
