//! Clocks of the upstream's processes that differ from Lapwing's. Units: nanoseconds from the request's start.
//!
//! The spans of one process have one clock, so they are moved as a group, by the least that makes them fit where they must lie: the
//! upstream's into the upstream window, a called service's server spans into the call. Order, lengths and gaps inside stay as they are. A
//! group that is longer than its place is not moved by this: then the process did more than serve the request, and its spans are clipped.
//!
//! Nothing begins before the request came, nor before the span that caused it: what would have shows a clock that is behind, and bounds
//! by how much one may be ahead. A span that ends after the response is of a clock that is ahead, or goes on: many servers end a span once
//! the client has its answer. So such ends count only where they are a fair part of what those bounds leave, and not at all of servers that
//! are known for it.
//!
//! Each exchange bounds how much a process's clock may differ. Once several agree, their common bounds decide: they place short requests
//! correctly too, and they distinguish work that goes on after the response from a clock that is ahead.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::span::{IncomingSpan, SpanKind};
use lapwing_ledger::{Ledger, SpanId};

/// Processes of which something is known: about 60 bytes each. The one that was not seen for longest gives way.
const PROCESSES: usize = 256;
/// This many exchanges must agree before what they have in common outweighs a single one, and this many disagree before it is forgotten.
const AGREED: u32 = 8;
/// A clock is taken to be ahead only by at least this part of the most that it could be: less is work after the response.
const PART_AHEAD: i64 = 4;

/// By how much spans may be moved: all values from the first to the second, zero inside where the clock may be right.
type Bounds = (i64, i64);

/// What is known about each process's clock.
#[derive(Debug, Default)]
pub(crate) struct ProcessClocks {
    processes: FxHashMap<u64, ProcessClock>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct ProcessClock {
    bounds: Bounds,
    /// Exchanges that agree with these bounds, and those of them in which spans end too late.
    agreed: u32,
    late: u32,
    /// Exchanges in a row that do not.
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
    pub(crate) fn place<'s>(&mut self, ledger: &Ledger, spans: &'s [IncomingSpan], is_learnt: bool) -> Cow<'s, [IncomingSpan]> {
        let Some(places) = Places::of(ledger) else { return Cow::Borrowed(spans) };
        let Some((first, rest)) = spans.split_first() else { return Cow::Borrowed(spans) };
        self.uses += u64::from(is_learnt);
        if rest.iter().all(|span| is_of_one_process(first, span)) {
            let fit = places.fit_in_window(spans).or_else(|| {
                let is_top = |span: &&IncomingSpan| !spans.iter().any(|other| Some(other.span) == span.parent);
                places.fit(|| spans.iter(), is_top, |_| Some(places.window))
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
        let cause = |span: &IncomingSpan| parent(span).filter(|at| process_of(&spans[*at]) != process_of(span));
        let caller = |span: &IncomingSpan| cause(span).filter(|at| spans[*at].kind == SpanKind::Client);
        let mut groups = Groups::of(spans, cause, caller, |span| parent(span).is_none());
        for number in 0..groups.groups.len() {
            let Group { process, is_called, .. } = groups.groups[number];
            let placed = |at: usize| {
                let by = groups.groups[groups.of[at]].moved_ns;
                let (from, to) = places.times(&spans[at]);
                (from.saturating_add(by), to.saturating_add(by))
            };
            let place = |span: &IncomingSpan| match caller(span) {
                Some(caller) if is_called => Some(placed(caller)),
                // it is not moved before what caused it
                None if !is_called => Some(cause(span).map_or(places.window, |cause| {
                    let after = placed(cause).0.min(places.times(span).0);
                    (places.window.0.max(after), places.window.1)
                })),
                // inside its process, or a call back into the upstream
                _ => None,
            };
            let own = || spans.iter().enumerate().filter(|(i, _)| groups.of[*i] == number).map(|(_, span)| span);
            let is_top = |span: &&IncomingSpan| parent(span).is_none_or(|at| process_of(&spans[at]) != process);
            let fit = places.fit(own, is_top, place);
            let by = self.decide(process, fit, places.tolerance_ns, is_learnt);
            groups.groups[number].moved_ns = by;
        }
        if groups.groups.iter().all(|group| group.moved_ns == 0) {
            return Cow::Borrowed(spans);
        }
        spans.iter().enumerate().map(|(i, span)| moved(span, groups.groups[groups.of[i]].moved_ns)).collect()
    }

    /// By how much a process's spans are moved that would fit within `fit`; `None` if they say nothing.
    fn decide(&mut self, process: u64, fit: Option<Bounds>, tolerance_ns: i64, is_learnt: bool) -> i64 {
        let Some(fit) = fit else { return self.processes.get(&process).and_then(ProcessClock::known).unwrap_or(0) };
        if is_learnt {
            self.learn(process, fit, tolerance_ns);
        }
        let clock = self.processes.get(&process);
        match (clock.and_then(ProcessClock::known), widened(fit, tolerance_ns)) {
            (Some(by), Some(fit)) if by != 0 && reaches(fit, by, tolerance_ns) => by.clamp(fit.0, fit.1),
            (Some(by), _) => by,
            (None, Some(fit)) if reaches(fit, 0, tolerance_ns) => 0,
            // an exchange in which the process began sooner shows that this is work after the response
            (None, Some(fit)) if clock.is_some_and(|clock| fit.1 < clock.bounds.0.saturating_sub(tolerance_ns)) => 0,
            (None, Some(fit)) => least(fit),
            (None, None) => 0,
        }
    }

    fn learn(&mut self, process: u64, fit: Bounds, tolerance_ns: i64) {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&process) {
            let oldest = self.processes.iter().min_by_key(|(_, clock)| clock.used).map(|(process, _)| *process);
            oldest.map(|process| self.processes.remove(&process));
        }
        let fresh = ProcessClock { bounds: (i64::MIN, i64::MAX), agreed: 0, late: 0, disagreed: 0, used: 0 };
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
        let window = ledger.bounded_window();
        let tolerance_ns = i64::try_from(window.tolerance_ns()).ok()?;
        Some(Self { ledger, window: (i64::try_from(window.start_ns).ok()?, i64::try_from(window.end_ns).ok()?), tolerance_ns })
    }

    fn times(&self, span: &IncomingSpan) -> (i64, i64) {
        let at = |at_unix_ns| offset(at_unix_ns, self.ledger.anchor_unix_ns);
        (at(span.start_unix_ns), at(span.end_unix_ns))
    }

    /// What [`Self::fit`] finds if all of `spans` can lie in the upstream window, as most do, in one pass; `None` if they are too long for that, or
    /// say nothing.
    fn fit_in_window(&self, spans: &[IncomingSpan]) -> Option<Bounds> {
        let (mut start, mut end) = (u64::MAX, 0);
        for span in spans.iter().filter(|span| is_evidence(span)) {
            start = start.min(span.start_unix_ns);
            if is_until_answer(span) {
                end = end.max(span.end_unix_ns);
            }
        }
        if start == u64::MAX {
            return None;
        }
        let at = |at_unix_ns| offset(at_unix_ns, self.ledger.anchor_unix_ns);
        let high = if end == 0 { i64::MAX } else { self.window.1.saturating_sub(at(end)) };
        let fit = (self.window.0.saturating_sub(at(start)), high);
        widened(fit, self.tolerance_ns).map(|_| fit)
    }

    /// By how much `spans` may be moved so that each lies in its `place`, or, if they are too long for that, so that the topmost ones
    /// do: concurrent work must not hold the server's span where it cannot be. The first value is the greater if these are too long
    /// too; `None` if there are none.
    fn fit<'s, I: Iterator<Item = &'s IncomingSpan>>(
        &self,
        spans: impl Fn() -> I,
        is_top: impl Fn(&&'s IncomingSpan) -> bool,
        place: impl Fn(&IncomingSpan) -> Option<(i64, i64)>,
    ) -> Option<Bounds> {
        let all = self.fit_of(spans(), &place)?;
        if widened(all, self.tolerance_ns).is_some() {
            return Some(all);
        }
        self.fit_of(spans().filter(is_top), &place).or(Some(all))
    }

    fn fit_of<'s>(
        &self,
        spans: impl Iterator<Item = &'s IncomingSpan>,
        place: impl Fn(&IncomingSpan) -> Option<(i64, i64)>,
    ) -> Option<Bounds> {
        let (mut low, mut high, mut any) = (i64::MIN, i64::MAX, false);
        for span in spans.filter(|span| is_evidence(span)) {
            let Some((from, to)) = place(span) else { continue };
            let (start, end) = self.times(span);
            let until = if is_until_answer(span) { to.saturating_sub(end) } else { i64::MAX };
            (low, high, any) = (low.max(from.saturating_sub(start)), high.min(until), true);
        }
        any.then_some((low, high))
    }
}

impl Groups {
    /// Groups spans by process: first those without a cause, then those that these cause or call.
    fn of(
        spans: &[IncomingSpan],
        cause: impl Fn(&IncomingSpan) -> Option<usize>,
        caller: impl Fn(&IncomingSpan) -> Option<usize>,
        is_top: impl Fn(&IncomingSpan) -> bool,
    ) -> Self {
        let mut of: SmallVec<[usize; 16]> = SmallVec::from_elem(usize::MAX, spans.len());
        let mut groups: SmallVec<[Group; 4]> = SmallVec::new();
        let group = |process, is_called| Group { process, is_called, moved_ns: 0 };
        let mut left: SmallVec<[u64; 4]> = spans.iter().filter(|span| cause(span).is_some()).map(process_of).collect();
        let tops: SmallVec<[u64; 4]> = spans.iter().filter(|span| is_top(span)).map(process_of).collect();
        left.retain(|process| !tops.contains(process));
        for process in spans.iter().map(process_of) {
            if !left.contains(&process) && !groups.iter().any(|known| known.process == process) {
                groups.push(group(process, false));
            }
        }
        while !left.is_empty() {
            let is_ready = |process: &u64| {
                let of_it = spans.iter().filter(|span| process_of(span) == *process).filter_map(&cause);
                of_it.map(|cause| process_of(&spans[cause])).all(|cause| groups.iter().any(|known| known.process == cause))
            };
            // of processes that call each other, one is first
            let at = left.iter().position(is_ready).unwrap_or(0);
            let process = left.swap_remove(at);
            if !groups.iter().any(|known| known.process == process) {
                let is_called = spans.iter().any(|span| process_of(span) == process && caller(span).is_some());
                groups.push(group(process, is_called));
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
    fn note(&mut self, (low, high): Bounds, tolerance: i64) {
        let is_too_long = widened((low, high), tolerance).is_none();
        if is_too_long && low > 0 {
            return; // it did something else than wait for the request
        }
        // what is too long goes on after the response, but it began when it began
        let fit = (low, if is_too_long { 0 } else { high });
        let common = (self.bounds.0.max(fit.0), self.bounds.1.min(fit.1));
        // what was taken for a clock that is ahead went on after the response
        let began_sooner = fit.0 > self.bounds.1 && (fit.0 <= 0 || self.agreed < AGREED);
        let late = u32::from(fit.1 < tolerance.saturating_neg());
        if common.0 <= common.1.saturating_add(tolerance) {
            // clocks drift and are read at different places: bounds that only just miss each other meet half-way
            let (low, high) = (common.0.min(common.1), common.1.max(common.0));
            let middle = low.midpoint(high);
            self.bounds = if common.0 <= common.1 { common } else { (middle, middle) };
            (self.agreed, self.late, self.disagreed) = (self.agreed.saturating_add(1), self.late.saturating_add(late), 0);
        } else if began_sooner || self.disagreed + 1 >= AGREED {
            (self.bounds, self.agreed, self.late, self.disagreed) = (fit, 1, late, 0);
        } else {
            self.disagreed += 1;
        }
    }

    /// By how much spans are moved by what several exchanges have in common; `None` before.
    fn known(&self) -> Option<i64> {
        (self.agreed >= AGREED).then(|| least(self.bounds)).map(|by| if by < 0 && self.late < AGREED { 0 } else { by })
    }
}

/// A number for the process that sent a span. Where its resource does not say which, all processes of a service count as one.
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

/// Whether its end says something of a clock: it does not go on after its answer, as far as is known.
fn is_until_answer(span: &IncomingSpan) -> bool {
    span.server.as_ref().is_none_or(|server| !server.outlasts_answer)
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

/// The value nearest to zero; zero of what is more likely to be work after the response.
const fn least((low, high): Bounds) -> i64 {
    if low > 0 {
        low
    } else if high < 0 && high <= low / PART_AHEAD {
        high
    } else {
        0
    }
}

fn reaches((low, high): Bounds, by: i64, tolerance: i64) -> bool {
    (low.saturating_sub(tolerance)..=high.saturating_add(tolerance)).contains(&by)
}

/// The span, moved by `by` with everything that it says about times.
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

/// A time by the wall clock on the clock that reads zero at `anchor_unix_ns`.
pub(crate) fn offset(at_unix_ns: u64, anchor_unix_ns: u64) -> i64 {
    let ns = i128::from(at_unix_ns) - i128::from(anchor_unix_ns);
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
