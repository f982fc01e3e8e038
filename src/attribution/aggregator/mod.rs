//! The aggregator: closed ledgers and received spans in, merged exchanges out. One thread owns it; time comes as stamps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::ledger::{Exchange, Ledger, Stamp, TracedSpan, Unit, Work};
use crate::metrics::{Counter, Counters};

use super::expect::Expect;
use super::merge::merge;
use super::pending::Pending;
use super::span::IncomingSpan;
use super::tree;

/// How spans are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// How long a closed ledger waits for spans at most; default 6 s, a little more than exporters' usual 5 s delay.
    pub grace_ns: u64,
    /// How long no span may have come, once the upstream's server span is there (or any span with others below it);
    /// default 250 ms.
    pub quiet_ns: u64,
    /// How many closed ledgers may wait; past it the oldest is merged with what is there. About 1.3 KB each, and
    /// 0.1 KB per span; default 8192.
    pub max_pending: usize,
    /// How many spans one exchange keeps; the rest are shed. Default 128.
    pub max_spans_per_exchange: usize,
    /// How many spans without an exchange are held; past it the oldest trace goes. About 700 bytes each; default 8192.
    pub max_orphan_spans: usize,
    /// How long a span without an exchange is held: it may come long before a slow request ends. Default 60 s.
    pub orphan_ns: u64,
    /// Whether ledgers wait at all.
    pub expect: Expect,
}

impl Default for Join {
    fn default() -> Self {
        Self {
            grace_ns: 6_000_000_000,
            quiet_ns: 250_000_000,
            max_pending: 8192,
            max_spans_per_exchange: 128,
            max_orphan_spans: 8192,
            orphan_ns: 60_000_000_000,
            expect: Expect::Auto,
        }
    }
}

/// What makes an exchange of a ledger and its spans.
pub type Merge = fn(Ledger, Vec<TracedSpan>) -> Exchange;

/// Joins and merges. Every ledger that goes in comes out of a sink exactly once, unless merging it or the sink panics;
/// then it is counted as dropped, and the others go on.
#[derive(Debug)]
pub struct Aggregator<M = Merge> {
    pending: Pending,
    finish: Finish<M>,
}

impl Aggregator {
    /// An empty aggregator that merges by [`merge()`].
    #[must_use]
    pub fn new(settings: Join, counters: Arc<Counters>) -> Self {
        Self::with_merge(settings, counters, merge)
    }
}

impl<M: Fn(Ledger, Vec<TracedSpan>) -> Exchange> Aggregator<M> {
    /// An empty aggregator that merges by `merge`.
    #[must_use]
    pub fn with_merge(settings: Join, counters: Arc<Counters>, merge: M) -> Self {
        Self { pending: Pending::new(settings, counters.clone()), finish: Finish { counters, merge } }
    }

    /// Takes a closed ledger: merged into `sink` now, or when its spans came.
    pub fn ledger(&mut self, ledger: Ledger, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        self.finish.counters.add(Counter::LedgerOverflowed, u64::from(ledger.overflowed));
        self.pending.ledger(ledger, now, &mut |ledger, spans| self.finish.one(ledger, spans, sink));
    }

    /// Takes received spans, and merges what is due.
    pub fn spans(&mut self, spans: Vec<IncomingSpan>, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        spans.into_iter().for_each(|span| self.pending.span(span, now));
        self.tick(now, sink);
    }

    /// Merges what is due. To be called several times per `quiet_ns`; costs next to nothing if nothing is due.
    pub fn tick(&mut self, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        self.pending.tick(now, &mut |ledger, spans| self.finish.one(ledger, spans, sink));
    }

    /// Merges everything that waits, with what is there.
    pub fn flush(&mut self, now: Stamp, sink: &mut impl FnMut(Exchange)) {
        self.pending.flush(now, &mut |ledger, spans| self.finish.one(ledger, spans, sink));
    }

    /// How many ledgers wait, and how many spans without an exchange are held.
    #[must_use]
    pub fn fill(&self) -> (usize, usize) {
        self.pending.fill()
    }
}

#[derive(Debug)]
struct Finish<M> {
    counters: Arc<Counters>,
    merge: M,
}

impl<M: Fn(Ledger, Vec<TracedSpan>) -> Exchange> Finish<M> {
    fn one(&self, mut ledger: Ledger, spans: Vec<IncomingSpan>, sink: &mut impl FnMut(Exchange)) {
        let finished = catch_unwind(AssertUnwindSafe(|| {
            let (traced, report) = tree::below(ledger.span, ledger.anchor_unix_ns, &spans);
            report.note(&mut ledger);
            divide_sums(&mut ledger);
            if !report.work.is_empty() {
                choose_primary(&mut ledger.work);
            }
            let exchange = (self.merge)(ledger, traced);
            self.counters.add(Counter::Clipped, u64::from(exchange.clipped));
            sink(exchange);
        }));
        if finished.is_err() {
            self.counters.bump(Counter::DroppedPanic);
        }
    }
}

/// Makes what is summed over a request's prompts the mean of one, since they run at the same time; without a word on how
/// many there are, it claims nothing.
fn divide_sums(ledger: &mut Ledger) {
    let prompts = ledger.work.get(Unit::Row).map_or(0, |(rows, _)| rows);
    ledger.reports.retain(|report| !report.is_sum || prompts > 0);
    for report in ledger.reports.iter_mut().filter(|report| report.is_sum) {
        report.duration_ns = report.duration_ns.checked_div(prompts).unwrap_or(report.duration_ns);
        report.is_sum = false;
    }
}

/// Of a request whose body told nothing, the tokens that its spans tell are what it costs.
fn choose_primary(work: &mut Work) {
    let has = |unit: &Unit| work.get(*unit).is_some_and(|(amount, _)| amount > 0);
    work.primary = work.primary.or_else(|| [Unit::OutputToken, Unit::InputToken].into_iter().find(has));
}

#[cfg(test)]
mod tests;
