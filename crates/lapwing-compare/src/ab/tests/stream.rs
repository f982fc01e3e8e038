//! Pairs that are the same on every machine: the seeded streams of the tests.

use crate::ab::PairCounts;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }
}

/// The stream of `tests/fixtures/ab/reference.py`, of integers only: a request of 0.5 to 1.5 ms; noise of each side, triangular
/// over ±13 %, with 1 in 61 three times as long; and the candidate `effect_permille` slower.
pub(crate) struct OracleStream {
    random: SplitMix,
    effect_permille: i64,
}

impl OracleStream {
    pub(crate) fn new(seed: u64, effect_permille: i64) -> Self {
        Self { random: SplitMix::new(seed), effect_permille }
    }

    /// The next pair: both latencies in nanoseconds, and whether outputs differ.
    pub(crate) fn next(&mut self) -> (u64, u64, bool) {
        let [request, baseline, candidate] = [self.random.next(), self.random.next(), self.random.next()];
        let base = 500_000 + (request >> 44);
        let factor = self.effect_permille.saturating_add(1_000).unsigned_abs();
        (side(base, baseline), side(base, candidate) * factor / 1_000, request.is_multiple_of(997))
    }

    pub(crate) fn record_next(&mut self, counts: &mut PairCounts) {
        let (baseline_ns, candidate_ns, differs) = self.next();
        counts.record(baseline_ns, candidate_ns);
        counts.record_mismatch(differs);
    }
}

fn side(base: u64, random: u64) -> u64 {
    let lane = |at: u32| (random >> (16 * at)) & 0xffff;
    let triangular = 1_000_000 + lane(0) + lane(1) - lane(2) - lane(3);
    base * triangular / 1_000_000 * if random.is_multiple_of(61) { 3 } else { 1 }
}
