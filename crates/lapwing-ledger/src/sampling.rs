//! Consistent probability sampling by trace id, as OpenTelemetry specifies it: a trace is sampled if the 56 random bits of its id are
//! not below a threshold, so that every sampler with the same share takes the same traces.
//!
//! See <https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/>.

use std::fmt;

use super::identity::TraceId;

/// How many random bits a trace id has, the lowest ones.
const BITS: u32 = 56;
const ALL: u64 = 1 << BITS;

/// The rejection threshold of a share: ids whose random bits are below it are not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingThreshold(u64);

impl SamplingThreshold {
    /// Samples every trace.
    pub const EVERYTHING: Self = Self(0);

    /// The threshold that samples `share` of the traces, 0 to 1.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "rounded, and saturates"
    )]
    pub fn of_share(share: f64) -> Self {
        Self((((1.0 - share) * ALL as f64).round() as u64).min(ALL))
    }

    /// Whether `trace` is sampled.
    #[must_use]
    pub const fn samples(self, trace: TraceId) -> bool {
        let random = (u128::from_be_bytes(trace.0) as u64) & (ALL - 1);
        random >= self.0
    }

    /// How many traces a sampled one represents: the inverse of the share; infinite if nothing is sampled.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn adjusted_count(self) -> f64 {
        ALL as f64 / (ALL - self.0) as f64
    }
}

/// The value of `th` in the trace state: 14 hexadecimal digits without the zeros at the end, `0` for everything. A threshold that
/// samples nothing has none, and is never written.
impl fmt::Display for SamplingThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:014x}", self.0.min(ALL - 1));
        let digits = digits.trim_end_matches('0');
        f.write_str(if digits.is_empty() { "0" } else { digits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification: `th:c` samples a quarter, `th:8` a half.
    #[test]
    fn thresholds_are_written_as_the_specification_does() {
        for (share, text, count) in [(1.0, "0", 1.0), (0.5, "8", 2.0), (0.25, "c", 4.0)] {
            let threshold = SamplingThreshold::of_share(share);
            assert_eq!((threshold.to_string().as_str(), threshold.adjusted_count()), (text, count));
        }
        let percent = SamplingThreshold::of_share(0.01);
        assert!(percent.to_string().starts_with("fd70a3d70a3d7"), "{percent}");
        assert!((percent.adjusted_count() - 100.0).abs() < 1e-6);
        assert_eq!(SamplingThreshold::of_share(1.0), SamplingThreshold::EVERYTHING);
    }

    #[test]
    fn only_the_lowest_56_bits_decide() {
        let half = SamplingThreshold::of_share(0.5);
        let trace = |low: u64| TraceId([[0xff; 8], low.to_be_bytes()].concat().try_into().unwrap());
        assert!(half.samples(trace(0x0080_0000_0000_0000)) && half.samples(trace(0xffff_ffff_ffff_ffff)));
        assert!(!half.samples(trace(0x007f_ffff_ffff_ffff)) && !half.samples(trace(0xff00_0000_0000_0000)));
        let (all, none) = (SamplingThreshold::EVERYTHING, SamplingThreshold::of_share(0.0));
        assert!(all.samples(trace(0)) && !none.samples(trace(u64::MAX)));
    }
}
