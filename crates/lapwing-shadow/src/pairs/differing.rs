//! The pairs whose outputs differ most, with the waterfalls of both sides. Offsets are nanoseconds from the moment at which the last
//! byte of the request was handed to the server, so that both sides have the same origin.
//!
//! Outputs are compared on another thread, so a result may come before or after the accounts of its pair. The latest sides are kept
//! for a while, and a result waits for its sides. Bounded: 512 latest sides, 64 waiting results, and for each target and route the 8
//! pairs that differ most, of 64 targets and routes at most.

use std::collections::{BTreeMap, VecDeque};

use super::half::PairFigure;
use super::half::PairHalf;
use lapwing_ledger::{Exchange, LabelId, PairId, TraceId};
use lapwing_ledger::{WaterfallBar, waterfall_bars};

/// How many of the latest sides are kept, for results that are still to come.
const MAX_RECENT: usize = 512;
/// How many results wait for their sides.
const MAX_AWAITED: usize = 64;
/// How many pairs of one target and route are kept.
const MAX_KEPT: usize = 8;
/// How many targets and routes have any.
const MAX_ROUTES: usize = 64;
/// How many bars of one side are kept; further ones are counted.
const MAX_BARS: usize = 32;

/// A pair whose outputs differ.
#[derive(Clone, Debug)]
pub struct DifferingPair {
    /// The greatest error among its differences; infinite if one is no number, as a text, a shape or a status.
    pub greatest_error: f64,
    /// The route, as the upstream has it.
    pub route: LabelId,
    /// The model.
    pub model: LabelId,
    /// The cost class; `None` where the work is unknown.
    pub class: Option<u8>,
    /// The upstream's side.
    pub primary: SideWaterfall,
    /// The target's side.
    pub copy: SideWaterfall,
}

/// Where one side of a pair spent its time.
#[derive(Clone, Debug, PartialEq)]
pub struct SideWaterfall {
    /// Its trace; `None` where only its figures are known, as of a recorded answer.
    pub trace: Option<TraceId>,
    /// Durations, in nanoseconds; the first is the total.
    pub figures: Vec<(PairFigure, u64)>,
    /// What happened inside the upstream window, in order of start. Empty where only figures are known.
    pub bars: Vec<WaterfallBar>,
    /// Bars that found no room.
    pub bars_left_out: usize,
}

/// A side as it came.
#[derive(Clone, Debug)]
struct SeenSide {
    half: PairHalf,
    /// Absent where only its figures are known.
    exchange: Option<Box<Exchange>>,
}

/// A result that waits for its sides.
#[derive(Debug)]
struct AwaitedPair {
    pair: PairId,
    target: usize,
    greatest_error: f64,
    primary: Option<SeenSide>,
    copy: Option<SeenSide>,
}

/// The pairs that differ most.
#[derive(Debug, Default)]
pub(crate) struct DifferingPairs {
    /// Sides by pair and target, the oldest first. Without a target it is the primary's.
    recent: VecDeque<(PairId, Option<usize>, SeenSide)>,
    awaited: VecDeque<AwaitedPair>,
    /// By target and route, those that differ most first.
    kept: BTreeMap<(usize, LabelId), Vec<DifferingPair>>,
}

impl DifferingPairs {
    /// Takes one side of a pair: that of `target`, or the primary's.
    pub(crate) fn saw(&mut self, pair: PairId, target: Option<usize>, half: &PairHalf, exchange: Option<&Exchange>) {
        let side = SeenSide { half: half.clone(), exchange: exchange.map(|exchange| Box::new(without_heap(exchange))) };
        let mut complete = Vec::new();
        for (at, awaited) in self.awaited.iter_mut().enumerate().filter(|(_, awaited)| awaited.pair == pair) {
            awaited.take(target, &side);
            if awaited.is_complete() {
                complete.push(at);
            }
        }
        // from the back, so that places stay what they are
        for at in complete.into_iter().rev() {
            if let Some(awaited) = self.awaited.remove(at) {
                self.insert_if_worst(awaited);
            }
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((pair, target, side));
    }

    /// Takes the result that the outputs of a pair differ.
    pub(crate) fn note(&mut self, pair: PairId, target: usize, greatest_error: f64) {
        let greatest_error = if greatest_error.is_nan() { f64::INFINITY } else { greatest_error };
        let mut awaited = AwaitedPair { pair, target, greatest_error, primary: None, copy: None };
        for (_, of, side) in self.recent.iter().filter(|(of, ..)| *of == pair) {
            awaited.take(*of, side);
        }
        if awaited.is_complete() {
            return self.insert_if_worst(awaited);
        }
        if self.awaited.len() >= MAX_AWAITED {
            self.awaited.pop_front();
        }
        self.awaited.push_back(awaited);
    }

    fn insert_if_worst(&mut self, awaited: AwaitedPair) {
        let (Some(primary), Some(copy)) = (awaited.primary, awaited.copy) else { return };
        let key = (awaited.target, primary.half.series.route);
        if !self.kept.contains_key(&key) && self.kept.len() >= MAX_ROUTES {
            return;
        }
        let kept = self.kept.entry(key).or_default();
        // among equals the latest comes first
        let at = kept.partition_point(|other| other.greatest_error > awaited.greatest_error);
        if at >= MAX_KEPT {
            return;
        }
        let pair = DifferingPair {
            greatest_error: awaited.greatest_error,
            route: primary.half.series.route,
            model: primary.half.series.model,
            class: primary.half.class,
            primary: primary.waterfall(),
            copy: copy.waterfall(),
        };
        kept.insert(at, pair);
        kept.truncate(MAX_KEPT);
    }

    /// The kept pairs of a target: by route, and within a route those that differ most first.
    pub(crate) fn of(&self, target: usize) -> Vec<DifferingPair> {
        self.kept.iter().filter(|((of, _), _)| *of == target).flat_map(|(_, pairs)| pairs.iter().cloned()).collect()
    }
}

impl AwaitedPair {
    /// Takes the side of `target`, or the primary's, if it belongs here.
    fn take(&mut self, target: Option<usize>, side: &SeenSide) {
        match target {
            None => self.primary = Some(side.clone()),
            Some(target) if target == self.target => self.copy = Some(side.clone()),
            Some(_) => {}
        }
    }

    const fn is_complete(&self) -> bool {
        self.primary.is_some() && self.copy.is_some()
    }
}

impl SeenSide {
    fn waterfall(&self) -> SideWaterfall {
        let figures = PairFigure::ALL.iter().zip(self.half.figures);
        let figures = figures.filter_map(|(figure, ns)| Some((*figure, ns?))).collect();
        let Some(exchange) = &self.exchange else {
            return SideWaterfall { trace: None, figures, bars: Vec::new(), bars_left_out: 0 };
        };
        let window = exchange.ledger.window.unwrap_or_default();
        let mut bars = waterfall_bars(exchange);
        // what the client's connection did is not the server's
        bars.retain(|bar| bar.start_ns >= window.start_ns && bar.end_ns <= window.end_ns);
        for bar in &mut bars {
            (bar.start_ns, bar.end_ns) = (bar.start_ns - window.start_ns, bar.end_ns - window.start_ns);
        }
        let bars_left_out = bars.len().saturating_sub(MAX_BARS);
        bars.truncate(MAX_BARS);
        SideWaterfall { trace: Some(exchange.ledger.trace), figures, bars, bars_left_out }
    }
}

/// The exchange without what grows with its answer or its prompt: no bar is made of these.
fn without_heap(exchange: &Exchange) -> Exchange {
    let mut ledger = exchange.ledger.clone();
    (ledger.generation, ledger.prompt) = (None, None);
    Exchange { ledger, ..exchange.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::merge;
    use lapwing_ledger::{Ledger, Report, ReportPlace, Stage, Stamp, UpstreamWindow};

    /// A side whose forward takes so many milliseconds, in a window that begins 1 ms after the request.
    fn side(ms: u64) -> Exchange {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        ledger.total_ns = (ms + 3) * 1_000_000;
        let (start_ns, end_ns) = (1_000_000, (ms + 2) * 1_000_000);
        ledger.window = Some(UpstreamWindow { start_ns, head_ns: end_ns, end_ns });
        ledger.report(Report::of(Stage::Forward, ms * 1_000_000, ReportPlace::Head));
        merge(ledger, Vec::new())
    }

    fn saw(pairs: &mut DifferingPairs, pair: u64, target: Option<usize>, ms: u64) {
        let exchange = side(ms);
        pairs.saw(PairId::new(pair).unwrap(), target, &PairHalf::of_copy(&exchange), Some(&exchange));
    }

    fn errors(pairs: &DifferingPairs) -> Vec<f64> {
        pairs.of(0).iter().map(|pair| pair.greatest_error).collect()
    }

    #[test]
    fn a_result_finds_its_sides_in_any_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut pairs = DifferingPairs::default();
            saw(&mut pairs, 7, Some(1), 50);
            for what in order {
                match what {
                    0 => saw(&mut pairs, 7, None, 10),
                    1 => saw(&mut pairs, 7, Some(0), 20),
                    _ => pairs.note(PairId::new(7).unwrap(), 0, 0.5),
                }
            }
            let [pair] = &pairs.of(0)[..] else { panic!("one pair: {order:?}") };
            let forward = |side: &SideWaterfall| side.bars.iter().map(|bar| (bar.start_ns, bar.end_ns)).collect::<Vec<_>>();
            // a report without a place in time lies at the end of the window, which begins at 0
            assert_eq!(forward(&pair.primary), [(1_000_000, 11_000_000)], "{order:?}");
            assert_eq!(forward(&pair.copy), [(1_000_000, 21_000_000)], "another target's side is not this one's");
            assert_eq!(pair.copy.figures[0], (PairFigure::Total, 21_000_000));
            assert!(pairs.of(1).is_empty() && pairs.awaited.is_empty());
        }
    }

    #[test]
    fn those_that_differ_most_are_kept() {
        let mut pairs = DifferingPairs::default();
        for n in 1..=20_u64 {
            saw(&mut pairs, n, None, n);
            saw(&mut pairs, n, Some(0), n);
            // 19 and 20 have no number
            pairs.note(PairId::new(n).unwrap(), 0, if n > 18 { f64::NAN } else { (n % 10) as f64 });
        }
        assert_eq!(errors(&pairs), [f64::INFINITY, f64::INFINITY, 9.0, 8.0, 8.0, 7.0, 7.0, 6.0]);
        assert_eq!(pairs.of(0)[0].primary.figures[0].1, 21_000_000, "the latest of equals first");
    }

    #[test]
    fn what_never_comes_takes_a_bounded_place() {
        let mut pairs = DifferingPairs::default();
        for n in 1..=2_000 {
            pairs.note(PairId::new(n).unwrap(), 0, 1.0);
            saw(&mut pairs, 10_000 + n, None, 1);
        }
        assert_eq!((pairs.awaited.len(), pairs.recent.len(), pairs.of(0).len()), (MAX_AWAITED, MAX_RECENT, 0));
    }
}
