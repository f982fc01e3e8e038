//! Clocks of the upstream's processes that differ from Lapwing's. Units: nanoseconds from the request's start.
//!
//! The spans of one process have one clock, so they are moved as a group, by the least that makes them fit where they must lie: the
//! upstream's into the upstream window, a called service's server spans into the call. Order, lengths and gaps inside stay as they are. A
//! group that is longer than its place is not moved by this: then the process did something else than wait for the request, and its
//! spans are clipped.
//!
//! Each exchange bounds how much a process's clock may differ. Once several agree, their common bounds decide: they place short requests
//! right too, and they tell work that goes on after the response from a clock that is ahead.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::merge::{bounds, tolerance_ns};
use super::span::{IncomingSpan, SpanKind};
use super::tree::offset;
use crate::ledger::{Ledger, SpanId};

/// Processes of which something is known: about 60 bytes each. The one that was not seen for longest gives way.
const PROCESSES: usize = 256;
/// So many exchanges must agree before what they have in common outweighs a single one; and so many disagree before it is forgotten.
const AGREED: u32 = 8;

/// By how much spans may be moved: all values from the first to the second, zero inside where the clock may be right.
type Bounds = (i64, i64);

/// What is known of each process's clock.
#[derive(Debug, Default)]
pub(super) struct ProcessClocks {
    processes: FxHashMap<u64, ProcessClock>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct ProcessClock {
    bounds: Bounds,
    agreed: u32,
    disagreed: u32,
    used: u64,
}

/// The spans of one process in one exchange.
#[derive(Clone, Copy, Debug)]
struct Group {
    process: u64,
    /// Another process's span that calls this one; else it lies below Lapwing's own span.
    is_called: bool,
    /// By how much its spans are moved.
    moved_ns: i64,
}

/// Each span's group, and the groups, callers before those whom they call.
#[derive(Debug)]
struct Groups {
    of: SmallVec<[usize; 16]>,
    groups: SmallVec<[Group; 4]>,
}

impl ProcessClocks {
    /// The spans where they belong: as they are, unless a clock differs. An exchange is to be learnt from once.
    pub(super) fn place<'s>(&mut self, ledger: &Ledger, spans: &'s [IncomingSpan], is_learnt: bool) -> Cow<'s, [IncomingSpan]> {
        let Some(places) = Places::of(ledger) else { return Cow::Borrowed(spans) };
        let Some((first, rest)) = spans.split_first() else { return Cow::Borrowed(spans) };
        self.uses += u64::from(is_learnt);
        if rest.iter().all(|span| is_of_one_process(first, span)) {
            let fit = places.fit_window(spans.iter()).or_else(|| {
                let is_below = |span: &IncomingSpan| spans.iter().any(|other| Some(other.span) == span.parent);
                places.fit_window(spans.iter().filter(|span| !is_below(span)))
            });
            let by = self.decide(process_of(first), fit, places.tolerance_ns, is_learnt);
            return if by == 0 { Cow::Borrowed(spans) } else { spans.iter().map(|span| moved(span, by)).collect() };
        }
        self.place_groups(&places, spans, is_learnt)
    }

    /// The same for spans of several processes.
    fn place_groups<'s>(&mut self, places: &Places<'_>, spans: &'s [IncomingSpan], is_learnt: bool) -> Cow<'s, [IncomingSpan]> {
        let parents: FxHashMap<SpanId, usize> = spans.iter().enumerate().map(|(i, span)| (span.span, i)).collect();
        let parent = |span: &IncomingSpan| parents.get(&span.parent?).copied();
        let caller = |span: &IncomingSpan| {
            parent(span).filter(|at| spans[*at].kind == SpanKind::Client && process_of(&spans[*at]) != process_of(span))
        };
        let mut groups = Groups::of(spans, caller, |span| parent(span).is_none());
        for number in 0..groups.groups.len() {
            let Group { process, is_called, .. } = groups.groups[number];
            let place = |span: &IncomingSpan| match caller(span) {
                Some(caller) if is_called => {
                    let by = groups.groups[groups.of[caller]].moved_ns;
                    let (from, to) = places.times(&spans[caller]);
                    Some((from.saturating_add(by), to.saturating_add(by)))
                }
                None if !is_called => Some(places.window),
                // inside its process, or a call back into the upstream
                _ => None,
            };
            let own = || spans.iter().enumerate().filter(|(i, _)| groups.of[*i] == number).map(|(_, span)| span);
            let is_top = |span: &&IncomingSpan| parent(span).is_none_or(|at| process_of(&spans[at]) != process);
            // work beside the request, below a server span, must not keep that span where it cannot be
            let fit = places.fit(own(), place).or_else(|| places.fit(own().filter(is_top), place));
            let by = self.decide(process, fit, places.tolerance_ns, is_learnt);
            groups.groups[number].moved_ns = by;
        }
        if groups.groups.iter().all(|group| group.moved_ns == 0) {
            return Cow::Borrowed(spans);
        }
        spans.iter().enumerate().map(|(i, span)| moved(span, groups.groups[groups.of[i]].moved_ns)).collect()
    }

    /// By how much a process's spans are moved that fit within `fit`; `None` if they do not fit.
    fn decide(&mut self, process: u64, fit: Option<Bounds>, tolerance_ns: i64, is_learnt: bool) -> i64 {
        if let Some(fit) = fit.filter(|_| is_learnt) {
            self.learn(process, fit, tolerance_ns);
        }
        let known = self.processes.get(&process).filter(|clock| clock.agreed >= AGREED);
        match (known.map(|clock| least(clock.bounds)), fit) {
            (Some(by), Some(fit)) if by != 0 && reaches(fit, by, tolerance_ns) => by.clamp(fit.0, fit.1),
            (Some(by), _) => by,
            (None, Some(fit)) if reaches(fit, 0, tolerance_ns) => 0,
            (None, Some(fit)) => least(fit),
            (None, None) => 0,
        }
    }

    fn learn(&mut self, process: u64, fit: Bounds, tolerance_ns: i64) {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&process) {
            let oldest = self.processes.iter().min_by_key(|(_, clock)| clock.used).map(|(process, _)| *process);
            oldest.map(|process| self.processes.remove(&process));
        }
        let fresh = ProcessClock { bounds: fit, agreed: 0, disagreed: 0, used: 0 };
        let clock = self.processes.entry(process).or_insert(fresh);
        clock.note(fit, tolerance_ns);
        clock.used = self.uses;
    }
}

/// Where spans must lie in one exchange.
struct Places<'l> {
    ledger: &'l Ledger,
    /// The upstream window, from and to.
    window: (i64, i64),
    /// What a span may exceed its place by without fault.
    tolerance_ns: i64,
}

impl<'l> Places<'l> {
    fn of(ledger: &'l Ledger) -> Option<Self> {
        ledger.window?;
        let window = bounds(ledger);
        let tolerance_ns = i64::try_from(tolerance_ns(window)).ok()?;
        Some(Self { ledger, window: (i64::try_from(window.start_ns).ok()?, i64::try_from(window.end_ns).ok()?), tolerance_ns })
    }

    fn times(&self, span: &IncomingSpan) -> (i64, i64) {
        let at = |at_unix_ns| offset(at_unix_ns, self.ledger.anchor_unix_ns);
        (at(span.start_unix_ns), at(span.end_unix_ns))
    }

    /// By how much `spans` may be moved so that all lie in the upstream window.
    fn fit_window<'s>(&self, spans: impl Iterator<Item = &'s IncomingSpan>) -> Option<Bounds> {
        let (mut start, mut end) = (u64::MAX, 0);
        for span in spans.filter(|span| is_evidence(span)) {
            (start, end) = (start.min(span.start_unix_ns), end.max(span.end_unix_ns));
        }
        let at = |at_unix_ns| offset(at_unix_ns, self.ledger.anchor_unix_ns);
        let (from, to) = self.window;
        let fit = || widened((from.saturating_sub(at(start)), to.saturating_sub(at(end))), self.tolerance_ns);
        (start < u64::MAX).then(fit).flatten()
    }

    /// By how much `spans` may be moved so that each lies in its `place`; `None` if they cannot, or have none.
    fn fit<'s>(
        &self,
        spans: impl Iterator<Item = &'s IncomingSpan>,
        place: impl Fn(&IncomingSpan) -> Option<(i64, i64)>,
    ) -> Option<Bounds> {
        let (mut low, mut high, mut any) = (i64::MIN, i64::MAX, false);
        for span in spans.filter(|span| is_evidence(span)) {
            let Some((from, to)) = place(span) else { continue };
            let (start, end) = self.times(span);
            (low, high, any) = (low.max(from.saturating_sub(start)), high.min(to.saturating_sub(end)), true);
        }
        any.then(|| widened((low, high), self.tolerance_ns)).flatten()
    }
}

impl Groups {
    /// Groups spans by process, those first that are called by nobody, then those whom these call.
    fn of(
        spans: &[IncomingSpan],
        caller: impl Fn(&IncomingSpan) -> Option<usize>,
        is_top: impl Fn(&IncomingSpan) -> bool,
    ) -> Self {
        let mut of: SmallVec<[usize; 16]> = SmallVec::from_elem(usize::MAX, spans.len());
        let mut groups: SmallVec<[Group; 4]> = SmallVec::new();
        let group = |process, is_called| Group { process, is_called, moved_ns: 0 };
        let mut left: SmallVec<[u64; 4]> = spans.iter().filter(|span| caller(span).is_some()).map(process_of).collect();
        let tops: SmallVec<[u64; 4]> = spans.iter().filter(|span| is_top(span)).map(process_of).collect();
        left.retain(|process| !tops.contains(process));
        for process in spans.iter().map(process_of) {
            if !left.contains(&process) && !groups.iter().any(|known| known.process == process) {
                groups.push(group(process, false));
            }
        }
        while !left.is_empty() {
            let is_ready = |process: &u64| {
                let of_it = spans.iter().filter(|span| process_of(span) == *process).filter_map(&caller);
                of_it.map(|caller| process_of(&spans[caller])).all(|caller| groups.iter().any(|known| known.process == caller))
            };
            // of processes that call each other, one is first
            let at = left.iter().position(is_ready).unwrap_or(0);
            let process = left.swap_remove(at);
            if !groups.iter().any(|known| known.process == process) {
                groups.push(group(process, true));
            }
        }
        for (i, span) in spans.iter().enumerate() {
            let process = process_of(span);
            of[i] = groups.iter().position(|known| known.process == process).unwrap_or(0);
        }
        Self { of, groups }
    }
}

impl ProcessClock {
    fn note(&mut self, bounds: Bounds, tolerance: i64) {
        let common = (self.bounds.0.max(bounds.0), self.bounds.1.min(bounds.1));
        if common.0 <= common.1.saturating_add(tolerance) {
            // clocks drift and are read at different places: bounds that only just miss each other meet half-way
            let (low, high) = (common.0.min(common.1), common.1.max(common.0));
            let middle = low.midpoint(high);
            self.bounds = if common.0 <= common.1 { common } else { (middle, middle) };
            (self.agreed, self.disagreed) = (self.agreed.saturating_add(1), 0);
        } else if self.agreed < AGREED || self.disagreed + 1 >= AGREED {
            (self.bounds, self.agreed, self.disagreed) = (bounds, 1, 0);
        } else {
            self.disagreed += 1;
        }
    }
}

/// A number for the process that sent a span. Where its resource does not say which, all of a service are taken for one.
fn process_of(span: &IncomingSpan) -> u64 {
    span.process.told().unwrap_or_else(|| {
        let mut hasher = FxHasher::default();
        span.service.hash(&mut hasher);
        hasher.finish()
    })
}

fn is_of_one_process(one: &IncomingSpan, other: &IncomingSpan) -> bool {
    match (one.process.told(), other.process.told()) {
        (None, None) => Arc::ptr_eq(&one.service, &other.service) || one.service == other.service,
        (one, other) => one == other,
    }
}

/// Whether a span must lie where the request's other spans of its process do: not the work of a whole batch, nor one without times.
const fn is_evidence(span: &IncomingSpan) -> bool {
    span.shared.is_none() && span.start_unix_ns > 0
}

/// The bounds of a group that fits, be it by the tolerance; `None` of one that is too long.
fn widened((low, high): Bounds, tolerance: i64) -> Option<Bounds> {
    if low <= high {
        return Some((low, high));
    }
    // both ends stick out by half of what is too much
    let middle = low.midpoint(high);
    (low.saturating_sub(high) <= tolerance.saturating_mul(2)).then_some((middle, middle))
}

/// The value nearest to zero.
const fn least((low, high): Bounds) -> i64 {
    if low > 0 {
        low
    } else if high < 0 {
        high
    } else {
        0
    }
}

fn reaches((low, high): Bounds, by: i64, tolerance: i64) -> bool {
    (low.saturating_sub(tolerance)..=high.saturating_add(tolerance)).contains(&by)
}

/// The span, moved by `by` with everything that it says of times.
fn moved(span: &IncomingSpan, by: i64) -> IncomingSpan {
    let mut moved = span.clone();
    if by == 0 {
        return moved;
    }
    let shift = |at: &mut u64| *at = at.saturating_add_signed(by);
    moved.shifted_ns = by;
    shift(&mut moved.start_unix_ns);
    shift(&mut moved.end_unix_ns);
    if let Some(server) = &mut moved.server {
        server.waits_from_unix_ns.as_mut().map(shift);
        server.begins_unix_ns.as_mut().map(shift);
        for piece in &mut server.pieces {
            shift(&mut piece.start_unix_ns);
            shift(&mut piece.end_unix_ns);
        }
    }
    moved
}

#[cfg(test)]
mod tests;
