//! Draws the state: a head, what waits in front of the upstreams if any may, the table, what the letters and keys mean, and over them the slowest requests or the help.

mod stages;
mod table;
mod waterfall;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::state::{Link, Panel, TopState};
use crate::inferred::inferred_words;
use crate::printable::printable;
use crate::stats::{Series, WaitingRequests};
use crate::units::{duration, percent};

const KEYS: &str = "↑↓ choose  enter slowest  s sort  r reverse  / filter  ? help  q quit";

const HELP: &str = "\
 ↑ ↓  PgUp PgDn  Home End   choose a row (also j k g G)
 Enter                      the slowest requests of the row; ← → the next of them
 s                          sort by time, rate, errors, p50, p99, name
 r                          reverse the order
 /                          show only routes and models with a text in their name
 Esc                        close, or clear the filter
 q  Ctrl-C                  quit

 Rows are series of /stats: a route, a model and an upstream. The bar is how the time
 of answered requests divides into stages; docs/STAGES.md says what each stage is.
 Percentiles are those of the window. The line at the end is p99 over the last minute.";

/// Draws everything; `address` is the admin address.
pub(crate) fn view(frame: &mut Frame<'_>, state: &mut TopState, address: &str) {
    let waiting = state.stats.dispatch.map(waiting_line);
    let parts = [1, u16::from(waiting.is_some()), 1].map(Constraint::Length).into_iter();
    let parts = parts.chain([Constraint::Fill(1), Constraint::Length(1), Constraint::Length(1)]);
    let [head, queue, link, body, legend, keys] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(headline(state, address)), head);
    waiting.into_iter().for_each(|line| frame.render_widget(Paragraph::new(line), queue));
    frame.render_widget(Paragraph::new(status(state, usize::from(link.width))), link);
    table::draw(frame, state, body);
    frame.render_widget(Paragraph::new(stages::legend()), legend);
    frame.render_widget(Paragraph::new(Span::styled(KEYS, Style::new().fg(Color::Gray))), keys);
    match &state.panel {
        Panel::None => {}
        Panel::Help => help(frame, body),
        Panel::Slowest { title, requests, at, scrolled } => waterfall::draw(frame, body, title, requests, *at, *scrolled),
    }
}

fn headline(state: &TopState, address: &str) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut parts = vec![Span::styled("lapwing top", bold), Span::raw(format!("  {}", printable(address, 80)))];
    if state.readings > 0 {
        let stats = &state.stats;
        let (window, up, dropped) = (printable(&stats.window, 20), duration(stats.profiler.uptime_ns), stats.profiler.dropped);
        let dropped = if dropped > 0 { format!(", {dropped} profiles dropped") } else { String::new() };
        let in_flight = stats.profiler.in_flight;
        parts.push(Span::raw(format!(
            "  window {window}, up {up}, {in_flight} in flight, {} series{dropped}",
            stats.series.len()
        )));
    }
    Line::from(parts)
}

/// What waits in front of the upstreams, and what was sent from there.
fn waiting_line(WaitingRequests { is_on, waiting, running, left_out }: WaitingRequests) -> Line<'static> {
    let left_out = match left_out {
        0 => String::new(),
        1 => ", 1 upstream left alone: it fails or stands still".to_owned(),
        more => format!(", {more} upstreams left alone: they fail or stand still"),
    };
    Line::raw(if is_on {
        format!("dispatch: {waiting} waiting, {running} running{left_out}")
    } else {
        "dispatch observes: none waits".to_owned()
    })
}

/// Whether Lapwing answers, else the order and the filter.
fn status(state: &TopState, columns: usize) -> Line<'static> {
    match &state.link {
        Link::Connecting => Line::raw("connecting …"),
        Link::Lost(reason) => {
            let old = if state.readings > 0 { "; figures are old" } else { "" };
            let text = printable(&format!("NO FIGURES{old}; trying again: {reason}"), columns);
            Line::styled(text, Style::new().fg(Color::White).bg(Color::Red))
        }
        Link::Live => {
            let arrow = if state.order.is_reversed { "reversed" } else { "" };
            let cursor = if state.is_typing { "▏" } else { "" };
            let filter = if state.is_typing || !state.filter.is_empty() {
                format!("  filter: {}{cursor}", printable(&state.filter, 60))
            } else {
                String::new()
            };
            let sorted = format!("sorted by {} {arrow}{filter}", state.order.by.name());
            if let Some(failing) = failing(state) {
                let text = printable(&format!("{failing}  {sorted}"), columns);
                return Line::styled(text, Style::new().fg(Color::White).bg(Color::Red));
            }
            let fitted = state.chosen_series().and_then(Series::fitted);
            let inferred = fitted.map_or_else(String::new, |fitted| format!("  inferred: {}", inferred_words(fitted)));
            Line::raw(format!("{sorted}{inferred}"))
        }
    }
}

/// Which series fail, the first by name and how; `None` if none does.
fn failing(state: &TopState) -> Option<String> {
    let failing: Vec<&Series> = state.stats.series.iter().filter(|series| series.is_failing()).collect();
    let first = failing.iter().max_by_key(|series| series.failed_by_server())?;
    let share = first.failed_by_server() as f64 / first.count.max(1) as f64;
    let kind = first.failures().first().map_or_else(String::new, |(name, _)| format!(", mostly {name}"));
    let others = if failing.len() > 1 { format!(" and {} more", failing.len() - 1) } else { String::new() };
    Some(format!("FAILING: {}: {}{kind}{others}", first.route.as_deref().unwrap_or_default(), percent(share)))
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let area = area.inner(Margin { horizontal: 2, vertical: 0 });
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" help ")), area);
}

#[cfg(test)]
mod tests;
