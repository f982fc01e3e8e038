//! Windows of time: which rotation slots make up the last 10 s, 1 min and 5 min.
//!
//! A rotation every 2 s closes a *fine* slot; about every 10 s the fine slots are merged into a *coarse* slot. A window consists
//! of the slots that end inside it and everything since the last rotation. So it covers at least its length (once the process is
//! that old) and at most one slot more: 10–12 s plus the remainder, 60–70 s, 300–310 s.
//! [`Registry::covered_ns`](super::Registry::covered_ns) returns the exact length.

use std::collections::VecDeque;

use lapwing_ledger::Stamp;

const SECOND: u64 = 1_000_000_000;
/// Fine slots are merged once they reach this far; a little below 10 s, so that late and early ticks do not add up.
const COARSE_NS: u64 = 9 * SECOND;
const FINE_KEPT_NS: u64 = 10 * SECOND;
const COARSE_KEPT_NS: u64 = 300 * SECOND;

/// A window of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// The last 10 seconds.
    TenSeconds,
    /// The last minute.
    #[default]
    OneMinute,
    /// The last five minutes.
    FiveMinutes,
    /// Since the process started.
    All,
}

impl Window {
    /// Every window, the shortest first.
    pub const ALL: [Self; 4] = [Self::TenSeconds, Self::OneMinute, Self::FiveMinutes, Self::All];

    /// The name in queries and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TenSeconds => "10s",
            Self::OneMinute => "1m",
            Self::FiveMinutes => "5m",
            Self::All => "all",
        }
    }

    /// The window of that name; `None` if there is no such window.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name)
    }

    const fn length_ns(self) -> u64 {
        match self {
            Self::TenSeconds => 10 * SECOND,
            Self::OneMinute => 60 * SECOND,
            Self::FiveMinutes => 300 * SECOND,
            Self::All => u64::MAX,
        }
    }
}

/// The slots of a window: those with these numbers and above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) fine_from: u64,
    pub(crate) coarse_from: u64,
    pub(crate) start: Stamp,
}

/// What a rotation does to every series in addition to closing its fine slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoarseRotation {
    /// The number of the new coarse slot.
    pub(crate) coarse: u64,
    /// The first fine slot that goes into it.
    pub(crate) fine_from: u64,
    /// Fine slots below this number are dropped.
    pub(crate) fine_kept: u64,
    /// Coarse slots below this number are dropped.
    pub(crate) coarse_kept: u64,
}

/// When the slots began and ended; the series hold the content of the slots, by number.
#[derive(Debug)]
pub(crate) struct Calendar {
    fine: VecDeque<Slot>,
    coarse: VecDeque<Slot>,
    opened: Stamp,
    last: Stamp,
    last_roll: Stamp,
    next_fine: u64,
    next_coarse: u64,
    unrolled: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    start: Stamp,
    end: Stamp,
}

impl Calendar {
    pub(crate) fn new(now: Stamp) -> Self {
        let (fine, coarse) = (VecDeque::new(), VecDeque::new());
        Self { fine, coarse, opened: now, last: now, last_roll: now, next_fine: 0, next_coarse: 0, unrolled: 0 }
    }

    /// Closes a fine slot and returns its number. If a coarse slot is due, also returns how to build it.
    pub(crate) fn rotate(&mut self, now: Stamp) -> (u64, Option<CoarseRotation>) {
        let now = now.max(self.last);
        let number = self.next_fine;
        self.next_fine += 1;
        self.fine.push_back(Slot { number, start: self.last, end: now });
        self.last = now;
        if now.since(self.last_roll) < COARSE_NS {
            return (number, None);
        }
        let fine_from = self.unrolled;
        self.coarse.push_back(Slot { number: self.next_coarse, start: self.last_roll, end: now });
        (self.unrolled, self.last_roll, self.next_coarse) = (self.next_fine, now, self.next_coarse + 1);
        self.fine.retain(|slot| now.since(slot.end) < FINE_KEPT_NS);
        self.coarse.retain(|slot| now.since(slot.end) < COARSE_KEPT_NS);
        let fine_kept = self.fine.front().map_or(self.next_fine, |slot| slot.number);
        let coarse_kept = self.coarse.front().map_or(self.next_coarse, |slot| slot.number);
        (number, Some(CoarseRotation { coarse: self.next_coarse - 1, fine_from, fine_kept, coarse_kept }))
    }

    /// When the last slot was closed.
    pub(crate) const fn last(&self) -> Stamp {
        self.last
    }

    /// The slots of `window` as of the last rotation; `All` needs no slots.
    pub(crate) fn select(&self, window: Window) -> Selection {
        let inside = |slot: &&Slot| self.last.since(slot.end) < window.length_ns();
        let first = |slots: &VecDeque<Slot>, from: u64| slots.iter().filter(|s| s.number >= from).find(inside).copied();
        let none = u64::MAX;
        let (fine, coarse) = match window {
            Window::TenSeconds => (first(&self.fine, 0), None),
            Window::OneMinute | Window::FiveMinutes => (first(&self.fine, self.unrolled), first(&self.coarse, 0)),
            Window::All => return Selection { fine_from: none, coarse_from: none, start: self.opened },
        };
        let start = coarse.or(fine).map_or(self.last, |slot| slot.start);
        Selection { fine_from: fine.map_or(none, |s| s.number), coarse_from: coarse.map_or(none, |s| s.number), start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_covers_its_length_and_at_most_one_slot_more() {
        let opened = Stamp::from_ns(1).unwrap();
        let mut calendar = Calendar::new(opened);
        for tick in 1..=400_u64 {
            let now = opened.plus(tick * 2 * SECOND);
            calendar.rotate(now);
            for (window, slot) in [(Window::TenSeconds, 2), (Window::OneMinute, 10), (Window::FiveMinutes, 10)] {
                let (covered, length) = (now.since(calendar.select(window).start), window.length_ns());
                assert!(covered >= length.min(tick * 2 * SECOND), "{window:?} covers {covered} at tick {tick}");
                assert!(covered < length + slot * SECOND, "{window:?} covers {covered} at tick {tick}");
            }
            assert!(calendar.fine.len() <= 10 && calendar.coarse.len() <= 31);
        }
    }

    #[test]
    fn names_read_back() {
        assert!(Window::ALL.into_iter().all(|w| Window::from_name(w.name()) == Some(w)));
        assert_eq!(Window::from_name("1h"), None);
    }
}
