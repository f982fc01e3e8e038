//! The bins of a pair's ratio, candidate to baseline: symmetric about the tie, 0.1 % wide up to 12.8 %, then 32 per octave of the
//! difference.
//!
//! Whole multiples of 0.1 % are edges, so a margin of 2 % is decided exactly.

use super::latency_bins::MAX_LATENCY_NS;

/// How many bins there are. Bins never change: pods of different versions add up.
pub(crate) const RATIO_BINS: usize = 2 * TIE + 1;

/// The bin of ties: the latencies differ by less than 0.1 %. Below it the candidate is faster. The first and the last bin hold
/// ratios beyond 1,050 and pairs of which one side failed.
pub(crate) const TIE: usize = 544;

/// Bins of a side with a width of 0.1 %.
const LINEAR: u64 = 128;
/// Bins of each octave above.
const PER_OCTAVE: u64 = 32;

/// The bin of a pair's ratio, from latencies in nanoseconds. A latency of 0 counts as 1 ns; one above 2⁴³ ns as 2⁴³ ns.
pub(crate) fn ratio_bin(baseline_ns: u64, candidate_ns: u64) -> usize {
    let (baseline_ns, candidate_ns) = (baseline_ns.min(MAX_LATENCY_NS), candidate_ns.min(MAX_LATENCY_NS));
    let (low, high) = (baseline_ns.min(candidate_ns), baseline_ns.max(candidate_ns));
    let permille = (high - low) * 1_000 / low.max(1);
    let from_tie = if permille < LINEAR {
        permille
    } else {
        let octave = permille.ilog2();
        (LINEAR + u64::from(octave - 7) * PER_OCTAVE + (permille >> (octave - 5)) - PER_OCTAVE).min(TIE as u64)
    };
    if candidate_ns > baseline_ns { TIE + from_tie as usize } else { TIE - from_tie as usize }
}

/// By how many thousandths the slower side exceeds the faster one at the inner edge of the bin `from_tie` bins from the tie.
fn excess_permille(from_tie: usize) -> u64 {
    let at = from_tie as u64;
    if at < LINEAR { at } else { (PER_OCTAVE + (at - LINEAR) % PER_OCTAVE) << ((at - LINEAR) / PER_OCTAVE + 2) }
}

/// The ratio at the lower edge of a bin, which is the upper edge of the bin before: 0 for the first, infinite past the last.
pub(crate) fn ratio_edge(bin: usize) -> f64 {
    let ratio = |from_tie| 1.0 + excess_permille(from_tie) as f64 / 1_000.0;
    if bin == 0 {
        0.0
    } else if bin <= TIE {
        1.0 / ratio(TIE - bin + 1)
    } else if bin < RATIO_BINS {
        ratio(bin - TIE)
    } else {
        f64::INFINITY
    }
}
