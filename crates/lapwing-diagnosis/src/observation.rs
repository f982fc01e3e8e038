//! What a diagnosis keeps of an exchange: a record of fixed size, in which times, bytes and work are rounded to one part in 2,000.

use super::part::Part;
use lapwing_ledger::{Annotation, Annotations, Exchange, ObservedEvent, Source, Stage, Stamp, TraceId};

/// A number in sixteen bits: exact up to 1,023, and with eleven significant bits beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed(u16);

/// How many bits of a packed number follow its first.
const FRACTION_BITS: u32 = 10;

impl Packed {
    /// The nearest lower number that has a place.
    pub(crate) const fn new(value: u64) -> Self {
        if value < 1 << FRACTION_BITS {
            return Self(value as u16);
        }
        let shift = value.ilog2() - FRACTION_BITS;
        let fraction = (value >> shift) as u16 & ((1 << FRACTION_BITS) - 1);
        Self((((shift + 1) as u16) << FRACTION_BITS) | fraction)
    }

    /// The middle of the range that the number represents.
    pub(crate) fn get(self) -> f64 {
        let shift = u32::from(self.0 >> FRACTION_BITS);
        let fraction = u64::from(self.0 & ((1 << FRACTION_BITS) - 1));
        if shift == 0 {
            return fraction as f64;
        }
        let lower = ((1 << FRACTION_BITS) | fraction) << (shift - 1);
        lower as f64 + ((1_u64 << (shift - 1)) - 1) as f64 / 2.0
    }
}

/// The record of one exchange. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observation {
    /// When its first byte came.
    pub(crate) arrived: Stamp,
    /// Its total, exactly.
    pub(crate) total_ns: u64,
    pub(crate) trace: TraceId,
    parts: [Packed; Part::COUNT],
    work: Packed,
    request_bytes: Packed,
    response_bytes: Packed,
    body_gap_ns: Packed,
    /// How many were in flight when it arrived, itself included; zero if unknown.
    pub(crate) in_flight: u16,
    pub(crate) cache_hits: u16,
    pub(crate) cache_misses: u16,
    pub(crate) annotations: Annotations,
    /// The cost class plus one; zero if the work is unknown.
    class: u8,
}

impl Observation {
    /// Of a merged exchange. Costs about 200 ns and allocates nothing.
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let ledger = &exchange.ledger;
        let seen = &ledger.circumstances;
        let narrow = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        Self {
            arrived: ledger.started,
            total_ns: ledger.total_ns,
            trace: ledger.trace,
            parts: parts_ns(exchange).map(Packed::new),
            work: Packed::new(ledger.work.primary_amount().unwrap_or(0)),
            request_bytes: Packed::new(ledger.request_bytes),
            response_bytes: Packed::new(ledger.response_bytes),
            body_gap_ns: Packed::new(seen.body_gap_ns),
            in_flight: narrow(seen.in_flight),
            cache_hits: narrow(seen.cache_hits),
            cache_misses: narrow(seen.cache_misses),
            annotations: seen.annotations,
            class: ledger.work.class().map_or(0, |class| class as u8 + 1),
        }
    }

    /// When its last byte was handed over.
    pub(crate) const fn ended(&self) -> Stamp {
        self.arrived.plus(self.total_ns)
    }

    /// The nanoseconds of each part.
    pub(crate) fn parts(&self) -> [f64; Part::COUNT] {
        self.parts.map(Packed::get)
    }

    /// The amount of work in the primary unit; zero if it is unknown.
    pub(crate) fn work(&self) -> f64 {
        self.work.get()
    }

    /// The cost class; `None` if the work is unknown.
    pub(crate) fn class(&self) -> Option<usize> {
        usize::from(self.class).checked_sub(1)
    }

    /// Body bytes of the request.
    pub(crate) fn request_bytes(&self) -> f64 {
        self.request_bytes.get()
    }

    /// Body bytes of the response.
    pub(crate) fn response_bytes(&self) -> f64 {
        self.response_bytes.get()
    }

    /// From the response's head to the first byte of its body.
    pub(crate) fn body_gap_ns(&self) -> f64 {
        self.body_gap_ns.get()
    }

    /// Whether the annotation is there.
    pub(crate) const fn has(&self, annotation: Annotation) -> bool {
        self.annotations.has(annotation)
    }
}

/// The time of the spans that the proxy observed of these events, in nanoseconds.
fn observed_ns(exchange: &Exchange, events: &[ObservedEvent]) -> u64 {
    let spans = exchange.ledger.spans.iter().filter(|span| events.contains(&span.event));
    spans.fold(0, |sum: u64, span| sum.saturating_add(span.end_ns.saturating_sub(span.start_ns)))
}

/// Splits an exchange's stages into parts.
///
/// Unattributed time is divided in this order, each part at most what is left: connecting, sending, the gap before the body, the
/// edges of the upstream window, the rest of that window; what remains is Lapwing's own.
fn parts_ns(exchange: &Exchange) -> [u64; Part::COUNT] {
    let mut parts = [0; Part::COUNT];
    for stage in Stage::ALL {
        let part = match stage {
            Stage::Ingress => Part::Ingress,
            Stage::Validation => Part::Validation,
            Stage::Cache => Part::Cache,
            Stage::Hydration => Part::Hydration,
            Stage::Preprocessing => Part::Preprocessing,
            Stage::Queue => Part::Queue,
            Stage::Forward => Part::Forward,
            Stage::Postprocessing => Part::Postprocessing,
            Stage::Downstream => Part::Downstream,
            Stage::Egress => Part::Egress,
            Stage::Upstream => Part::Undivided,
            Stage::Unattributed => Part::Own,
        };
        parts[part as usize] = exchange.account.stage_ns(stage);
    }
    let mut divide = |from: Part, to: Part, ns: u64| {
        let moved = ns.min(parts[from as usize]);
        parts[from as usize] -= moved;
        parts[to as usize] += moved;
        moved
    };
    divide(Part::Queue, Part::OwnQueue, exchange.account.by_source_ns(Stage::Queue, Source::Observed));
    divide(Part::Egress, Part::Backpressure, observed_ns(exchange, &[ObservedEvent::Backpressure]));
    divide(Part::Own, Part::Connect, observed_ns(exchange, &[ObservedEvent::Connect, ObservedEvent::Attempt]));
    divide(Part::Own, Part::Send, observed_ns(exchange, &[ObservedEvent::Send]));
    let seen = &exchange.ledger.circumstances;
    if seen.annotations.has(Annotation::SplitWrite) || seen.annotations.has(Annotation::Unhelped) {
        let unattributed = divide(Part::Own, Part::BodyGap, seen.body_gap_ns);
        divide(Part::Undivided, Part::BodyGap, seen.body_gap_ns - unattributed);
    }
    if let Some(window) = exchange.ledger.window {
        let mut unclaimed_ns = window.length_ns().saturating_sub(exchange.claimed_ns);
        let first = exchange.traced.iter().map(|span| span.start_ns).min();
        let last = exchange.traced.iter().map(|span| span.end_ns).max();
        if let (Some(first), Some(last)) = (first, last) {
            // the clocks of two hosts may differ, but not by much within one request
            let inside_ns = u64::try_from(last.saturating_sub(first)).unwrap_or(0);
            let edges_ns = window.length_ns().saturating_sub(inside_ns).min(unclaimed_ns);
            unclaimed_ns -= divide(Part::Own, Part::Edge, edges_ns);
        }
        divide(Part::Own, Part::Unreported, unclaimed_ns);
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use lapwing_ledger::{Ledger, SpanNote, TracedSpan, UpstreamWindow};

    #[test]
    fn a_record_is_as_small_as_the_documents_say() {
        assert_eq!(size_of::<Observation>(), 88);
    }

    #[test]
    fn unattributed_time_is_divided_by_what_is_known_of_it() {
        let started = Stamp::default().plus(1_000);
        let mut ledger = Ledger::open(started, 0);
        ledger.observe(Stage::Unattributed, ObservedEvent::Connect, started.plus(10), started.plus(40));
        ledger.observe(Stage::Egress, ObservedEvent::Backpressure, started.plus(900), started.plus(950));
        ledger.window = Some(UpstreamWindow { start_ns: 100, head_ns: 800, end_ns: 900 });
        (ledger.total_ns, ledger.circumstances.body_gap_ns) = (1_000, 60);
        ledger.circumstances.annotations.add(Annotation::SplitWrite);
        let mut exchange = Exchange::of(ledger);
        exchange.account.add(Stage::Forward, Source::Traced, 300);
        exchange.account.add(Stage::Egress, Source::Observed, 80);
        exchange.account.add(Stage::Unattributed, Source::Observed, 620);
        let span = |start_ns, end_ns| TracedSpan {
            name: "s".into(),
            stage: None,
            phase: None,
            start_ns,
            end_ns,
            depth: 1,
            note: SpanNote::default(),
        };
        exchange.traced = vec![span(200, 500), span(300, 600)];
        exchange.claimed_ns = 300;
        let observation = Observation::of(&exchange);
        let of = |part: Part| observation.parts()[part as usize];
        assert_eq!((of(Part::Connect), of(Part::BodyGap), of(Part::Edge), of(Part::Unreported)), (30.0, 60.0, 400.0, 100.0));
        assert_eq!((of(Part::Egress), of(Part::Backpressure), of(Part::Own)), (30.0, 50.0, 30.0));
        assert_eq!(observation.parts().iter().sum::<f64>(), 1_000.0);
    }

    proptest! {
        #[test]
        fn packed_numbers_keep_their_size_and_order(a: u64, b: u64, shift in 0_u32..64) {
            let (a, b) = (a >> shift, b >> shift);
            let (near_a, near_b) = (Packed::new(a), Packed::new(b));
            prop_assert!((near_a.get() - a as f64).abs() <= a as f64 / 2_000.0);
            prop_assert!(near_a.cmp(&near_b) != a.cmp(&b).reverse() || a == b);
        }
    }
}
