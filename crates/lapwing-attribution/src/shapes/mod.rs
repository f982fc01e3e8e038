//! Learns, for each route, which spans usually lie below which, whether another process sends them, and how late they come. So an
//! exchange waits for what similar exchanges have, and no longer.
//!
//! A span is known by its *shape*: the sender's service and the span's name, without words that hold digits (ids, numbers). A
//! process exports its spans in the order in which they end, so when a parent arrives, its children of the same process are
//! usually there; children of other processes come up to a whole export interval later. Learnt counts are halved as they grow:
//! they follow a route over its last 256 to 512 spans of a shape, so that what a killed process never sent does not teach that
//! nothing comes. Everything is bounded; the least recently seen gives way.

mod delays;

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use self::delays::Delays;
use super::span::{IncomingSpan, ProcessId};
use lapwing_ledger::{LabelId, SeriesKey, SpanId, Stamp};

/// How many shapes of one route are known.
const SHAPES: usize = 64;
/// How many shapes of children of one shape are known.
const CHILDREN: usize = 16;
/// When a shape was seen this often, its counts are halved.
const SEEN: u16 = 512;
/// A shape must have been seen this often before a child of another process is expected below it.
const MIN_SEEN: u16 = 4;
/// The same for a child of the same process.
const MIN_SEEN_SAME_PROCESS: u16 = 20;

/// What a span is recognised by. Two names may share a value by accident, which makes a wait a little longer or shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanShape(u64);

/// A span of an exchange, as the wait sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanMark {
    pub(crate) id: SpanId,
    /// Its parent; Lapwing's own span if there is none.
    pub(crate) parent: SpanId,
    pub(crate) shape: SpanShape,
    pub(crate) process: ProcessId,
    /// When it joined its exchange.
    pub(crate) came: Stamp,
    /// Whether it calls something that may report by itself: a client's or producer's span, except calls to stores, and a
    /// server's span that waits for another to begin.
    pub(crate) calls: bool,
}

/// An exchange and the spans that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanSet<'a> {
    pub(crate) series: SeriesKey,
    /// Lapwing's own span.
    pub(crate) own: SpanId,
    /// When the exchange closed.
    pub(crate) closed: Stamp,
    pub(crate) marks: &'a [SpanMark],
}

/// What an exchange lacks, by what exchanges like it have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingSpans {
    /// Whether something is missing.
    pub(crate) is_incomplete: bool,
    /// When what is missing has usually come.
    pub(crate) until: Option<Stamp>,
    /// Whether it is known which spans directly below Lapwing's own usually come.
    pub(crate) knows_tops: bool,
    /// Whether there is a call below which spans may or may not follow: too few like it have been seen.
    pub(crate) is_unknown: bool,
}

/// The shapes of every route. Routes and upstreams are interned in bounded tables, and routes that gave way there are forgotten
/// here, so this is bounded too.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    routes: FxHashMap<(LabelId, LabelId), RouteShapes>,
}

#[derive(Debug, Default)]
struct RouteShapes {
    shapes: Vec<KnownShape>,
    /// The number of exchanges and spans learnt.
    clock: u64,
}

#[derive(Debug)]
struct KnownShape {
    shape: SpanShape,
    seen: u16,
    last: u64,
    children: Vec<KnownChild>,
}

/// A shape that was seen below another one.
#[derive(Debug)]
struct KnownChild {
    shape: SpanShape,
    /// How many spans of the parent's shape had one.
    seen: u16,
    /// How many had one of another process.
    seen_elsewhere: u16,
    /// How late it came: after its exchange closed, if another process sends it, else after its parent.
    delays: Delays,
    last: u64,
}

impl SpanShape {
    /// Lapwing's own span.
    const OWN: Self = Self(0);

    pub(crate) fn of(span: &IncomingSpan) -> Self {
        let service = span.service.as_bytes().split(|byte| *byte == b'/').next().unwrap_or_default();
        let mut hasher = FxHasher::default();
        hasher.write(service);
        for word in span.name.as_bytes().split(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric()) {
            match word.iter().any(u8::is_ascii_digit) {
                true => hasher.write_u8(b'0'),
                false => hasher.write(word),
            }
        }
        Self(hasher.finish().max(1))
    }
}

impl SpanMark {
    /// Whether it represents Lapwing's span.
    fn is_own(&self) -> bool {
        self.shape == SpanShape::OWN
    }
}

impl<'a> SpanSet<'a> {
    /// Lapwing's own span, and each span of the exchange.
    fn parents(&self) -> impl Iterator<Item = SpanMark> + use<'a> {
        let (id, shape, came) = (self.own, SpanShape::OWN, self.closed);
        let own = SpanMark { id, parent: id, shape, process: ProcessId::default(), came, calls: false };
        std::iter::once(own).chain(self.marks.iter().copied())
    }

    fn children(&self, parent: SpanId) -> impl Iterator<Item = &'a SpanMark> + Clone + use<'a> {
        self.marks.iter().filter(move |mark| mark.parent == parent && mark.id != parent)
    }
}

impl Shapes {
    /// Learns from an exchange that stops waiting. Returns how many known shapes gave way.
    pub(crate) fn learn(&mut self, set: SpanSet<'_>) -> u64 {
        let route = self.routes.entry((set.series.route, set.series.upstream)).or_default();
        route.clock += 1;
        let mut evicted = 0;
        for parent in set.parents() {
            evicted += u64::from(route.see(parent.shape));
            let children = set.children(parent.id);
            for (i, child) in children.clone().enumerate() {
                // the first of its shape speaks for all
                if children.clone().take(i).all(|other| other.shape != child.shape) {
                    let alike = children.clone().filter(|other| other.shape == child.shape);
                    let came = alike.clone().map(|other| other.came).max().unwrap_or(child.came);
                    let is_elsewhere = parent.is_own() || alike.clone().any(|other| other.process != parent.process);
                    evicted += u64::from(route.see_child(set.closed, &parent, child.shape, came, is_elsewhere));
                }
            }
        }
        evicted
    }

    /// Learns from a span that came after its exchange was recorded. `set` has it already.
    pub(crate) fn learn_late(&mut self, set: SpanSet<'_>, late: SpanMark) -> u64 {
        let route = self.routes.entry((set.series.route, set.series.upstream)).or_default();
        let mut evicted = u64::from(route.see(late.shape));
        let parent = set.parents().find(|parent| parent.id == late.parent);
        let alike = |mark: &&SpanMark| mark.shape == late.shape && mark.id != late.id;
        if let Some(parent) = parent.filter(|parent| set.children(parent.id).find(alike).is_none()) {
            evicted += u64::from(route.see_child(
                set.closed,
                &parent,
                late.shape,
                late.came,
                parent.is_own() || late.process != parent.process,
            ));
        }
        evicted
    }

    /// What the exchange lacks. `is_followed` says whether what follows a call's span belongs to another exchange.
    pub(crate) fn missing(&self, set: SpanSet<'_>, is_followed: impl Fn(SpanId) -> bool) -> MissingSpans {
        let mut missing = MissingSpans::default();
        let route = self.routes.get(&(set.series.route, set.series.upstream));
        for parent in set.parents() {
            let known = route.and_then(|route| route.find(parent.shape));
            let mut children = set.children(parent.id);
            let is_known = known.is_some_and(|known| known.seen >= MIN_SEEN);
            if parent.calls && !is_known && children.next().is_none() && !is_followed(parent.id) {
                missing.is_unknown = true;
            }
            let Some(known) = known else { continue };
            let is_own = parent.is_own();
            for child in known.children.iter().filter(|child| known.expects(child)) {
                missing.knows_tops |= is_own;
                if set.children(parent.id).any(|mark| mark.shape == child.shape) {
                    continue;
                }
                missing.is_incomplete = true;
                missing.until = missing.until.max(Some(known.awaits(child, set.closed, parent.came)));
            }
            if is_own {
                missing.is_incomplete |= set.marks.is_empty() && known.usually_has_children();
            }
        }
        missing
    }

    /// Forgets the routes that are not kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(LabelId) -> bool) {
        self.routes.retain(|(route, _), _| is_kept(*route));
    }

    /// How many shapes and how many of their children are known.
    #[cfg(test)]
    fn sizes(&self) -> (usize, usize) {
        let shapes = || self.routes.values().flat_map(|route| &route.shapes);
        (shapes().count(), shapes().map(|known| known.children.len()).sum())
    }
}

impl RouteShapes {
    fn find(&self, shape: SpanShape) -> Option<&KnownShape> {
        self.shapes.iter().find(|known| known.shape == shape)
    }

    /// Counts a span. Returns whether another shape gave way.
    fn see(&mut self, shape: SpanShape) -> bool {
        let clock = self.clock;
        let fresh = || KnownShape { shape, seen: 0, last: clock, children: Vec::new() };
        let (known, is_evicted) = slot(&mut self.shapes, SHAPES, |known| (known.shape == shape, known.last), fresh);
        (known.seen, known.last) = (known.seen + 1, clock);
        if known.seen >= SEEN {
            known.halve();
        }
        is_evicted
    }

    /// Counts a child of a span that was counted. Returns whether another child's shape gave way.
    fn see_child(&mut self, closed: Stamp, parent: &SpanMark, shape: SpanShape, came: Stamp, is_elsewhere: bool) -> bool {
        let clock = self.clock;
        let Some(known) = self.shapes.iter_mut().find(|known| known.shape == parent.shape) else { return false };
        let most = known.seen;
        let fresh = || KnownChild { shape, seen: 0, seen_elsewhere: 0, delays: Delays::default(), last: clock };
        let (child, is_evicted) = slot(&mut known.children, CHILDREN, |child| (child.shape == shape, child.last), fresh);
        child.last = clock;
        child.seen = (child.seen + 1).min(most);
        child.seen_elsewhere = (child.seen_elsewhere + u16::from(is_elsewhere)).min(child.seen);
        child.delays.add(came, came.since(if is_elsewhere { closed } else { parent.came }));
        is_evicted
    }
}

/// The entry that is wanted, else a fresh one. If there are `most`, it takes the place of the one seen longest ago, and true is
/// returned.
fn slot<T>(entries: &mut Vec<T>, most: usize, look: impl Fn(&T) -> (bool, u64), fresh: impl FnOnce() -> T) -> (&mut T, bool) {
    let found = entries.iter().position(|entry| look(entry).0);
    let (at, is_evicted) = match found {
        Some(at) => (at, false),
        None if entries.len() < most => {
            entries.push(fresh());
            (entries.len() - 1, false)
        }
        None => {
            let oldest = (0..entries.len()).min_by_key(|at| look(&entries[*at]).1).unwrap_or(0);
            entries[oldest] = fresh();
            (oldest, true)
        }
    };
    (&mut entries[at], is_evicted)
}

impl KnownShape {
    fn halve(&mut self) {
        self.seen /= 2;
        for child in &mut self.children {
            (child.seen, child.seen_elsewhere) = (child.seen / 2, child.seen_elsewhere / 2);
        }
        self.children.retain(|child| child.seen > 0);
    }

    /// Whether a span of this shape usually has the child: another process's in at least half of them, the same process's in 19 of
    /// 20. What the own process omits, a cache hit or a branch, is no loss; a process that sends nothing is.
    fn expects(&self, child: &KnownChild) -> bool {
        if self.shape != SpanShape::OWN && child.is_elsewhere() {
            self.seen >= MIN_SEEN && child.seen * 2 >= self.seen
        } else {
            self.seen >= MIN_SEEN_SAME_PROCESS && child.seen * 20 >= self.seen * 19
        }
    }

    /// When a child that is missing has usually come.
    fn awaits(&self, child: &KnownChild, closed: Stamp, parent_came: Stamp) -> Stamp {
        match child.is_elsewhere() {
            true => closed.plus(child.delays.longest_ns()),
            false if child.delays.is_none() => parent_came,
            false => parent_came.plus(child.delays.longest_ns()),
        }
    }

    /// Whether at least half of these spans have a child of the most frequent shape.
    fn usually_has_children(&self) -> bool {
        self.seen >= MIN_SEEN && self.children.iter().any(|child| child.seen * 2 >= self.seen)
    }
}

impl KnownChild {
    /// Whether another process sends it, mostly. All spans below Lapwing's own are from another process.
    const fn is_elsewhere(&self) -> bool {
        self.seen_elsewhere * 2 >= self.seen
    }
}

#[cfg(test)]
mod tests;
