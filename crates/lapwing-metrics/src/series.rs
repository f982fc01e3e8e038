//! One series: the totals and histograms of one route, model and upstream. Durations are nanoseconds, times per unit picoseconds,
//! debts millionths.
//!
//! Recording touches only the exact totals since the last rotation and the end of a short list of cells. The list is counted into
//! the histograms when it is full, after some twenty exchanges, so that a series which has left the processor's caches costs a
//! few misses in total instead of several per measure. Gaps between tokens bypass the list, because one answer has many of them.
//! Memory of one series: 7 KiB, up to 5 KB of exemplars, and for each measure that occurs 0.9 KiB, 80 bytes for each page (3–6 %
//! of the value range; 33–50 % for values per unit) that was ever hit, more where its counts pass 255 (512 at most), and 256
//! bytes for each page that was hit in its last slot; for each slot with traffic (at most 10 fine and 31 coarse) 1 to 2 KiB and 8
//! bytes for each distinct value. An idle series holds no slots.

use std::collections::VecDeque;
use std::hint::black_box;

use super::budget::{RequestLimits, RouteBudget};
use super::cells::{Cells, Count, coalesce, key};
use super::exemplars::Exemplars;
use super::figures::{SeriesTotals, gap_ns};
use super::layout::Layout;
use super::load::SlotLoad;
use super::measure::Measure;
use super::window::{CoarseRotation, Selection, Window};
use lapwing_ledger::{Exchange, LabelId, SeriesKey, Server, Stamp, Unit};

/// How many values the list holds before they are counted; 2 KiB.
const LISTED: usize = 512;

/// What is known about a series in addition to its totals, independent of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesFacts {
    /// The unit of cost classes and of per-unit values: the primary unit of the first answered request that had one.
    pub primary: Option<Unit>,
    /// The server that answered last, if it is known.
    pub server: Option<Server>,
    /// The optimum of its debts: that of the first answered request that had one.
    pub optimum: Option<LabelId>,
}

/// The result of recording an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// How many of its values were above their histogram's bounds.
    pub(crate) clipped: u64,
    /// Whether it is the first exchange since the last rotation.
    pub(crate) first: bool,
    /// Whether its work is counted in another unit than the series', so that it has no part in per-unit values and classes.
    pub(crate) mixed: bool,
}

/// Totals and histograms of one key.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) key: SeriesKey,
    pub(crate) facts: SeriesFacts,
    now: SeriesTotals,
    before: SeriesTotals,
    /// Keys of values since the last rotation that are not in `cells` yet.
    listed: Vec<u32>,
    cells: [Option<Box<Cells>>; Measure::COUNT],
    fine: VecDeque<Slot>,
    coarse: VecDeque<Slot>,
    touched: bool,
    pub(crate) exemplars: Exemplars,
    pub(crate) budget: RouteBudget,
    pub(crate) limits: RequestLimits,
    /// When the slot began in which it was opened.
    pub(crate) opened: Stamp,
    /// When the slot began in which it was last recorded into.
    pub(crate) used: Stamp,
}

/// The totals and counts between two rotations.
#[derive(Debug)]
struct Slot {
    number: u64,
    figures: Box<SeriesTotals>,
    counts: Box<[Count<u32>]>,
}

impl Series {
    pub(crate) fn new(key: SeriesKey, (budget, limits): (RouteBudget, RequestLimits), opened: Stamp) -> Self {
        Self {
            key,
            budget,
            limits,
            opened,
            facts: SeriesFacts::default(),
            now: SeriesTotals::default(),
            before: SeriesTotals::default(),
            listed: Vec::new(),
            cells: [const { None }; Measure::COUNT],
            fine: VecDeque::new(),
            coarse: VecDeque::new(),
            touched: false,
            exemplars: Exemplars::default(),
            used: Stamp::default(),
        }
    }

    /// Adds an exchange.
    pub(crate) fn record(&mut self, exchange: &Exchange) -> Recorded {
        if self.listed.capacity() - self.listed.len() < Measure::MOST {
            self.count_listed();
        }
        let is_answered = Measure::of(exchange) == Measure::Total;
        let own = exchange.ledger.work.primary.filter(|_| is_answered);
        if is_answered {
            self.facts.learn(exchange);
        }
        let (listed, mut clipped) = (&mut self.listed, 0);
        let comparable = own.is_some() && own == self.facts.primary;
        self.now.record(exchange, comparable, self.facts.optimum, |measure, value| {
            let layout = measure.layout();
            clipped += u64::from(value > layout.high());
            listed.push(key(measure.index() as u32, usize::from(layout.cell(value))));
        });
        self.now.count_over(&self.budget, &self.limits, exchange);
        if let Some(slot) = self.exemplars.wants(exchange) {
            self.keep_exemplar(slot, exchange, comparable);
        }
        if let Some(generation) = exchange.ledger.generation.as_ref().filter(|_| is_answered) {
            clipped += self.count_gaps(&generation.gaps_us);
        }
        let first = !std::mem::replace(&mut self.touched, true);
        Recorded { clipped, first, mixed: own.is_some() && !comparable }
    }

    /// Keeps an exchange as an exemplar, with the values that it adds to the histograms.
    #[cold]
    fn keep_exemplar(&mut self, slot: u8, exchange: &Exchange, comparable: bool) {
        let mut values = Vec::with_capacity(Measure::MOST);
        let each = |measure, value| values.push((measure, value));
        SeriesTotals::default().record(exchange, comparable, self.facts.optimum, each);
        self.exemplars.replace(slot, exchange, &values);
    }

    /// Counts an exchange that was recorded before and is mended now. Returns whether it is the first event since the last rotation.
    pub(crate) fn mend(&mut self, moved_ns: u64) -> bool {
        self.now.mend(moved_ns);
        !std::mem::replace(&mut self.touched, true)
    }

    /// Counts the gaps of one answer, and returns how many of them were above the bounds.
    fn count_gaps(&mut self, gaps_us: &[u32]) -> u64 {
        if gaps_us.is_empty() {
            return 0;
        }
        let cells = self.cells[Measure::InterToken.index()].get_or_insert_with(|| Box::new(Cells::new()));
        gaps_us.iter().for_each(|us| cells.record(Layout::Time.cell(gap_ns(*us))));
        gaps_us.iter().filter(|us| gap_ns(**us) > Layout::Time.high()).count() as u64
    }

    /// The totals since the start.
    pub(crate) fn totals(&self) -> SeriesTotals {
        let mut totals = self.now.clone();
        totals.merge(&self.before);
        totals
    }

    /// Reads from each cache line that [`Self::record`] will write to.
    pub(crate) fn warm(&self) {
        let listed = self.listed.last().copied().unwrap_or_default();
        black_box(self.now.lines() ^ u64::from(listed) ^ u64::from(self.touched));
    }

    /// Counts the listed values into the histograms.
    #[cold]
    fn count_listed(&mut self) {
        for key in self.listed.drain(..) {
            let cells = &mut self.cells[(key >> 16) as usize];
            cells.get_or_insert_with(|| Box::new(Cells::new())).record(key as u16);
        }
        self.listed.reserve_exact(LISTED);
    }

    /// Closes the fine slot `number`, and adds what it counted to the load.
    pub(crate) fn rotate(&mut self, number: u64, load: &mut SlotLoad) {
        self.count_listed();
        let empty = self.now.emptied();
        let figures = std::mem::replace(&mut self.now, empty);
        let mut counts = Vec::new();
        for (measure, cells) in self.cells.iter_mut().enumerate() {
            if let Some(cells) = cells {
                cells.rotate(measure as u32, &mut counts);
            }
        }
        self.before.merge(&figures);
        load.add(&figures);
        self.fine.push_back(Slot { number, figures: Box::new(figures), counts: counts.into() });
        self.touched = false;
        self.exemplars.rotate();
    }

    /// Merges fine slots into a coarse one, and drops slots that no window reaches any more.
    pub(crate) fn roll(&mut self, roll: &CoarseRotation) {
        let mut figures = Box::new(SeriesTotals::default());
        let mut counts = Vec::new();
        for slot in self.fine.iter().filter(|slot| slot.number >= roll.fine_from) {
            slot.add_to(&mut figures, &mut counts);
        }
        if figures.count() > 0 {
            coalesce(&mut counts);
            let narrow = |c: &Count<u64>| Count { key: c.key, count: u32::try_from(c.count).unwrap_or(u32::MAX) };
            self.coarse.push_back(Slot { number: roll.coarse, figures, counts: counts.iter().map(narrow).collect() });
        }
        self.fine.retain(|slot| slot.number >= roll.fine_kept);
        self.coarse.retain(|slot| slot.number >= roll.coarse_kept);
    }

    /// How many fine and coarse slots are held.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> (usize, usize) {
        (self.fine.len(), self.coarse.len())
    }

    /// The content of `window`: exact totals, and counts sorted by key.
    pub(crate) fn read(&self, window: Window, selection: &Selection) -> (SeriesTotals, Vec<Count<u64>>) {
        let mut figures = self.now.clone();
        let mut counts: Vec<_> = self.listed.iter().map(|key| Count { key: *key, count: 1 }).collect();
        if window == Window::All {
            figures.merge(&self.before);
        }
        for (measure, cells) in self.cells.iter().enumerate() {
            if let Some(cells) = cells.as_ref().filter(|_| self.touched || window == Window::All) {
                cells.read(measure as u32, window == Window::All, &mut counts);
            }
        }
        let fine = self.fine.iter().filter(|slot| slot.number >= selection.fine_from);
        let coarse = self.coarse.iter().filter(|slot| slot.number >= selection.coarse_from);
        for slot in fine.chain(coarse) {
            slot.add_to(&mut figures, &mut counts);
        }
        coalesce(&mut counts);
        (figures, counts)
    }
}

impl SeriesFacts {
    fn learn(&mut self, exchange: &Exchange) {
        self.primary = self.primary.or(exchange.ledger.work.primary);
        self.server = exchange.ledger.server.or(self.server);
        self.optimum = self.optimum.or_else(|| Some(exchange.optimal_forward?.optimum));
    }
}

impl Slot {
    fn add_to(&self, figures: &mut SeriesTotals, counts: &mut Vec<Count<u64>>) {
        figures.merge(&self.figures);
        counts.extend(self.counts.iter().map(|c| Count { key: c.key, count: u64::from(c.count) }));
    }
}
