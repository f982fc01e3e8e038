//! Which traces the user's own SDK would have sampled if Lapwing were not there.
//!
//! The samplers by ratio take no random number: they decide by bits of the trace id, and the SDKs do not agree on how. So that
//! what is forwarded is what the service would have sent, each is followed exactly. An SDK that is not listed counts as Go's.
//!
//! - Python: the low 64 bits below `round(ratio · 2^64)` (`opentelemetry/sdk/trace/sampling.py`, `TraceIdRatioBased`)
//! - Go, Rust: the low 64 bits, halved, below `⌊ratio · 2^63⌋` (`sdk/trace/sampling.go`, `opentelemetry-sdk/src/trace/sampler.rs`)
//! - Java: the absolute value of the low 64 bits as a signed number below `⌊ratio · (2^63 − 1)⌋` (`TraceIdRatioBasedSampler.java`)
//! - JavaScript: the exclusive or of the four 32-bit parts below `⌊ratio · (2^32 − 1)⌋` (`TraceIdRatioBasedSampler.ts`)

use lapwing_ledger::TraceId;
use lapwing_settings::{RootSampler, TraceSampler};

/// The SDK of a service, as far as it matters for sampling by ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python,
    Go,
    Java,
    JavaScript,
}

impl Sdk {
    /// By the resource attribute `telemetry.sdk.language`.
    pub(crate) fn of_language(language: Option<&str>) -> Self {
        match language {
            Some("python") => Self::Python,
            Some("java") => Self::Java,
            Some("nodejs" | "webjs") => Self::JavaScript,
            _ => Self::Go,
        }
    }

    /// Whether a sampler by `ratio`, 0 to 1, samples `trace`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "as the SDKs round")]
    fn chooses(self, trace: TraceId, ratio: f64) -> bool {
        const TWO_TO_63: f64 = (1_u64 << 63) as f64;
        let id = u128::from_be_bytes(trace.0);
        let low = id as u64;
        match self {
            Self::Python => u128::from(low) < (ratio * TWO_TO_63 * 2.0).round_ties_even() as u128,
            Self::Go => ratio >= 1.0 || low >> 1 < (ratio * TWO_TO_63) as u64,
            // `Long.MAX_VALUE` as a double is 2^63; the cast back saturates
            Self::Java => ratio > 0.0 && low.cast_signed().wrapping_abs() < (ratio * TWO_TO_63) as i64,
            Self::JavaScript => {
                let parts = [id >> 96, id >> 64, id >> 32, id].map(|part| part as u32);
                parts.iter().fold(0, |a, b| a ^ b) < (ratio * f64::from(u32::MAX)) as u32
            }
        }
    }
}

/// Whether `sampler` in `sdk` would have sampled `trace`; `parent` is the decision that the client sent, if it sent one.
pub(crate) fn would_sample(sampler: TraceSampler, trace: TraceId, parent: Option<bool>, sdk: Sdk) -> bool {
    match (parent, sampler.root) {
        (Some(is_sampled), _) if sampler.is_parent_based => is_sampled,
        (_, RootSampler::AlwaysOn) => true,
        (_, RootSampler::AlwaysOff) => false,
        (_, RootSampler::Ratio(ratio)) => sdk.chooses(trace, ratio),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(high: u64, low: u64) -> TraceId {
        TraceId((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }

    /// The ids on both sides of each SDK's bound, by its own source.
    #[test]
    fn each_sdk_decides_as_its_source_says() {
        const TENTH_OF_2_64: u64 = 1_844_674_407_370_955_264; // Python: round(0.1 * 2**64)
        for (sdk, last, first_not) in [
            (Sdk::Python, trace(9, TENTH_OF_2_64 - 1), trace(0, TENTH_OF_2_64)),
            (Sdk::Go, trace(9, TENTH_OF_2_64 - 1), trace(0, TENTH_OF_2_64)),
            (Sdk::Java, trace(9, TENTH_OF_2_64 / 2 - 1), trace(0, TENTH_OF_2_64 / 2)),
            (Sdk::Java, trace(9, (TENTH_OF_2_64 / 2 - 1).wrapping_neg()), trace(0, (TENTH_OF_2_64 / 2).wrapping_neg())),
            // ⌊0.1 · 0xffffffff⌋ = 429496729
            (Sdk::JavaScript, trace(7 << 32, 7 << 32 | 429_496_728), trace(7 << 32, 7 << 32 | 429_496_729)),
        ] {
            assert!(sdk.chooses(last, 0.1) && !sdk.chooses(first_not, 0.1), "{sdk:?}");
            assert!(sdk.chooses(last, 0.2) && !sdk.chooses(last, 0.0), "{sdk:?}");
        }
        // a tiny ratio: Python rounds half to even, Go down
        let (one_and_a_half, id) = (1.5 / 18_446_744_073_709_551_616.0, trace(0, 1));
        assert!(Sdk::Python.chooses(id, one_and_a_half) && !Sdk::Go.chooses(id, one_and_a_half));
        for sdk in [Sdk::Python, Sdk::Go] {
            assert!(sdk.chooses(trace(0, u64::MAX), 1.0), "{sdk:?}");
        }
        // Java compares with Long.MAX_VALUE at a ratio of 1, and |Long.MIN_VALUE| is negative
        assert!(Sdk::Java.chooses(trace(0, 1 << 63), 1.0) && !Sdk::Java.chooses(trace(0, i64::MAX as u64), 1.0));
    }

    #[test]
    fn a_parents_decision_counts_only_for_samplers_that_are_based_on_it() {
        let sampler = |text: &str| text.parse::<TraceSampler>().unwrap();
        let decide = |text, parent| would_sample(sampler(text), trace(0, 5), parent, Sdk::Python);
        assert_eq!([None, Some(true), Some(false)].map(|parent| decide("parentbased_always_off", parent)), [false, true, false]);
        assert_eq!([None, Some(true), Some(false)].map(|parent| decide("always_on", parent)), [true; 3]);
        assert_eq!([None, Some(true), Some(false)].map(|parent| decide("always_off", parent)), [false; 3]);
        assert_eq!(
            [None, Some(true), Some(false)].map(|parent| decide("parentbased_traceidratio:0", parent)),
            [false, true, false]
        );
        assert_eq!([None, Some(true), Some(false)].map(|parent| decide("traceidratio:0.1", parent)), [true; 3]);
    }
}
