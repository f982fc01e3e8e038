//! How many more pairs it takes until there is a verdict, if what was seen so far goes on.

use super::{MARGIN, MEDIAN, PRIOR, VERDICT_EVIDENCE, log_evidence};
use crate::ab::counts::{PairCounts, RATIO_BINS, TIE, ratio_edge};
use crate::ab::evidence::BlockVariance;
use crate::ab::tracking::Tracking;

/// Beyond this number of pairs no verdict is in sight.
const MOST_PAIRS: u64 = 1_000_000_000;
/// Blocks grow longer, so their number does not grow with the pairs beyond this.
const MOST_BLOCKS: f64 = 128.0;

/// How many more pairs until some verdict on the median; 0 if there is one, `None` if none is in sight.
///
/// Shares, variance and the number of blocks are those seen, scaled to more pairs; in simulations half the estimates were within
/// a factor of 1.1 of what it took, four in five within 0.9 and 2.3.
pub(crate) fn further_pairs(counts: &PairCounts, tracking: &Tracking) -> Option<u64> {
    let (ratios, n) = (&counts.ratios, counts.pairs());
    let seen = tracking.ratios[MEDIAN].variance(ratios);
    if seen.blocks == 0.0 {
        return None;
    }
    let share_below = |bin| ratios.below(bin) as f64 / n as f64;
    let upper = (TIE..RATIO_BINS).find(|bin| ratio_edge(bin + 1) > 1.0 + MARGIN)?;
    let lower = (0..=TIE).rev().find(|bin| ratio_edge(*bin) < 1.0 / (1.0 + MARGIN))?;
    let (faster, slower) = (share_below(TIE), 1.0 - share_below(TIE + 1));
    let (below_margin, above_margin) = (share_below(upper), 1.0 - share_below(lower + 1));

    let is_majority = |share: f64, pairs: u64| {
        let pairs = pairs as f64;
        let growth = pairs / n as f64;
        let variance = BlockVariance {
            variance: seen.variance * pairs / n as f64,
            blocks: (seen.blocks * growth).min(seen.blocks.max(MOST_BLOCKS)),
            ..seen
        };
        share > 0.5 && log_evidence(share * pairs, pairs, 0.5, &variance, PRIOR) >= VERDICT_EVIDENCE
    };
    let is_decided = |pairs| {
        is_majority(faster, pairs)
            || is_majority(slower, pairs)
            || (is_majority(below_margin, pairs) && is_majority(above_margin, pairs))
    };
    let (mut undecided, mut decided) = (n, n);
    while !is_decided(decided) {
        (undecided, decided) = (decided, 2 * decided);
        if decided > MOST_PAIRS {
            return None;
        }
    }
    while decided - undecided > 1 {
        let middle = undecided.midpoint(decided);
        *(if is_decided(middle) { &mut decided } else { &mut undecided }) = middle;
    }
    Some(decided - n)
}
