//! What `lapwing top` shows, and what a key changes in it. It draws and asks nothing itself.

use std::collections::{HashMap, VecDeque};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::feed::Reading;
use super::rows::{Order, RowKey, SeriesRow, rows};
use super::slowest::SlowRequest;
use crate::stats::{NameFilter, Series, Stats};

/// Readings that the line of p99 shows: a minute.
pub(crate) const HISTORY: usize = 60;
/// The most characters of a filter.
const MAX_FILTER: usize = 128;
/// Rows that a page key moves by.
const PAGE: usize = 10;

/// Whether Lapwing answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Link {
    #[default]
    Connecting,
    Live,
    /// It does not, and why.
    Lost(String),
}

/// What covers the table.
#[derive(Clone, Debug, Default)]
pub(crate) enum Panel {
    #[default]
    None,
    Help,
    /// The slowest requests of a row, its title above them.
    Slowest {
        title: String,
        requests: Requests,
        at: usize,
        scrolled: usize,
    },
}

/// Requests that were asked for.
#[derive(Clone, Debug)]
pub(crate) enum Requests {
    Asked,
    Failed(String),
    Known(Vec<SlowRequest>),
}

/// What a key asks for beyond the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Quit,
    /// Fetch the slowest requests with these names.
    Fetch(NameFilter),
}

/// Everything that is shown.
#[derive(Debug, Default)]
pub(crate) struct TopState {
    pub(crate) link: Link,
    pub(crate) stats: Stats,
    /// Readings so far.
    pub(crate) readings: u64,
    /// The p99 of each row at the latest readings in nanoseconds, the newest last; `None` without traffic.
    history: HashMap<RowKey, VecDeque<Option<f64>>>,
    pub(crate) order: Order,
    pub(crate) filter: String,
    pub(crate) is_typing: bool,
    pub(crate) panel: Panel,
    /// The row that is chosen, which stays chosen where it moves.
    chosen: Option<RowKey>,
    pub(crate) table: TableState,
}

impl TopState {
    /// The rows in their order.
    pub(crate) fn rows(&self) -> Vec<SeriesRow<'_>> {
        rows(&self.stats, self.order, &self.filter)
    }

    /// The figures of the chosen row.
    pub(crate) fn chosen_series(&self) -> Option<&Series> {
        let at = self.table.selected()?;
        self.rows().get(at).map(|row| row.series)
    }

    /// The p99 of a row at the latest readings.
    pub(crate) fn history(&self, key: &RowKey) -> impl Iterator<Item = Option<f64>> + '_ {
        self.history.get(key).into_iter().flatten().copied()
    }

    /// Takes what was read.
    pub(crate) fn take(&mut self, reading: Reading) {
        match reading {
            Reading::Lost(reason) => self.link = Link::Lost(reason),
            Reading::Figures(stats) => {
                (self.stats, self.link, self.readings) = (*stats, Link::Live, self.readings + 1);
                let mut history = std::mem::take(&mut self.history);
                // the history of a series that the answer has no longer ends: there are as many histories as series
                self.history = rows(&self.stats, Order::default(), "")
                    .iter()
                    .map(|row| {
                        let mut past = history.remove(&row.key()).unwrap_or_default();
                        if past.len() == HISTORY {
                            past.pop_front();
                        }
                        past.push_back(Some(row.series.total.p99_ns).filter(|_| row.series.total.count > 0));
                        (row.key(), past)
                    })
                    .collect();
            }
        }
        self.place();
    }

    /// Takes the requests that were fetched, if their panel is still open.
    pub(crate) fn take_requests(&mut self, fetched: Result<Vec<SlowRequest>, String>) {
        if let Panel::Slowest { requests, .. } = &mut self.panel {
            *requests = fetched.map_or_else(Requests::Failed, Requests::Known);
        }
    }

    /// Points the table at the chosen row; at the first, if the chosen one is gone.
    fn place(&mut self) {
        let keys: Vec<RowKey> = self.rows().iter().map(SeriesRow::key).collect();
        let at = self.chosen.as_ref().and_then(|chosen| keys.iter().position(|key| key == chosen));
        self.table.select(if keys.is_empty() { None } else { Some(at.unwrap_or(0)) });
    }

    fn choose(&mut self, to: impl FnOnce(usize) -> usize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else { return };
        let at = to(self.table.selected().unwrap_or(0)).min(last);
        let key = rows[at].key();
        self.chosen = Some(key);
        self.place();
    }

    /// What a key does.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Effect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Effect::Quit } else { Effect::None };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Effect::None;
        }
        match &mut self.panel {
            Panel::None => return self.press_in_table(key.code),
            Panel::Help => match key.code {
                KeyCode::Char('q') => return Effect::Quit,
                _ => self.panel = Panel::None,
            },
            Panel::Slowest { requests, at, scrolled, .. } => {
                let last = if let Requests::Known(requests) = requests { requests.len().saturating_sub(1) } else { 0 };
                match key.code {
                    KeyCode::Char('q') => return Effect::Quit,
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.panel = Panel::None,
                    KeyCode::Right | KeyCode::Char('l' | 'n') => (*at, *scrolled) = ((*at + 1).min(last), 0),
                    KeyCode::Left | KeyCode::Char('h' | 'p') => (*at, *scrolled) = (at.saturating_sub(1), 0),
                    KeyCode::Down | KeyCode::Char('j') => *scrolled += 1,
                    KeyCode::Up | KeyCode::Char('k') => *scrolled = scrolled.saturating_sub(1),
                    _ => {}
                }
            }
        }
        Effect::None
    }

    fn press_in_table(&mut self, code: KeyCode) -> Effect {
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.panel = Panel::Help,
            KeyCode::Char('s') => self.order = Order { by: self.order.by.next(), is_reversed: false },
            KeyCode::Char('r') => self.order.is_reversed = !self.order.is_reversed,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.choose(|at| at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(|at| at.saturating_sub(1)),
            KeyCode::PageDown => self.choose(|at| at + PAGE),
            KeyCode::PageUp => self.choose(|at| at.saturating_sub(PAGE)),
            KeyCode::Home | KeyCode::Char('g') => self.choose(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.choose(|_| usize::MAX),
            KeyCode::Enter => return self.open_slowest(),
            _ => {}
        }
        self.place();
        Effect::None
    }

    fn open_slowest(&mut self) -> Effect {
        let rows = self.rows();
        let Some(row) = self.table.selected().and_then(|at| rows.get(at)) else { return Effect::None };
        let (title, names) = (row.title(120), NameFilter::of(row.series));
        self.panel = Panel::Slowest { title, requests: Requests::Asked, at: 0, scrolled: 0 };
        Effect::Fetch(names)
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) if self.filter.chars().count() < MAX_FILTER => self.filter.push(char),
            _ => {}
        }
        self.place();
    }
}
