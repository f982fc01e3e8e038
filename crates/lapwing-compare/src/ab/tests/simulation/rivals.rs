//! The methods with which ours is compared: tests made for one look, and sequential tests that assume independence. Each
//! at 5 %, from the 30th pair on.

/// The pairs from which the rivals test.
const FROM: u64 = 30;
/// The standard normal deviation of 5 %.
const Z: f64 = 1.959_964;

/// Which of the tests have found a difference so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rivals {
    sum: f64,
    squares: f64,
    /// A z test of the mean of the logarithm of the ratio.
    pub(crate) z: bool,
    /// A sign test.
    pub(crate) sign: bool,
    /// A mixture sequential probability ratio test of that mean (Johari et al., Oper. Res. 2022), with a prior of 5 %.
    pub(crate) msprt: bool,
}

impl Rivals {
    /// A look after a pair.
    pub(crate) fn observe_pair(&mut self, (baseline_ns, candidate_ns): (u64, u64), pairs: u64, (wins, losses): (u64, u64)) {
        if self.z && self.sign && self.msprt {
            return;
        }
        let log_ratio = (candidate_ns as f64 / baseline_ns as f64).ln();
        self.sum += log_ratio;
        self.squares += log_ratio * log_ratio;
        if pairs < FROM {
            return;
        }
        let n = pairs as f64;
        let mean = self.sum / n;
        let variance = self.squares / n - mean * mean;
        self.z |= n * mean * mean > Z * Z * variance;
        let (difference, decided) = (wins as f64 - losses as f64, (wins + losses) as f64);
        self.sign |= difference * difference > Z * Z * decided;
        let prior = 0.05 * 0.05;
        let total = variance + n * prior;
        let log_ratio = 0.5 * (variance / total).ln() + n * n * mean * mean * prior / (2.0 * variance * total);
        self.msprt |= variance > 0.0 && log_ratio >= 20.0_f64.ln();
    }
}
