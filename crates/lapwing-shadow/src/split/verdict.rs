//! What the figures of a live split mean for its share: which limits are exceeded, and why it is too early to say that none is.
//!
//! Few keys with many requests each count as if each had asked once: intervals are as wide as those of so many requests.

use std::fmt::Write;

use super::config::StopOn;
use super::judge::{SplitJudge, side_index};
use super::outputs::SplitOutputs;
use super::ramp::Findings;
use lapwing_compare::ab::{IntervalEstimate, PairSide};

/// So many keys of each side must have been judged before anything is concluded: what one user meets says little of the next.
const MIN_KEYS: u64 = 20;
/// The same for p99, of which fewer know nothing.
const MIN_KEYS_OF_TAIL: u64 = 200;

/// Widens the interval of a ratio or a share, `by` times.
fn widened(estimate: &IntervalEstimate, by: f64, is_ratio: bool) -> (f64, f64) {
    let (low, high) = (estimate.low, estimate.high.unwrap_or(f64::INFINITY));
    match estimate.value {
        _ if by <= 1.0 => (low, high),
        None => (0.0, f64::INFINITY),
        Some(value) if is_ratio => (value * (low / value).powf(by), value * (high / value).powf(by)),
        Some(value) => ((value - (value - low) * by).max(0.0), (value + (high - value) * by).min(1.0)),
    }
}

/// What is known by now, against the limits.
pub(crate) fn findings(judge: &SplitJudge, outputs: Option<&SplitOutputs>, limits: &StopOn) -> Findings {
    let keys = [PairSide::Baseline, PairSide::Candidate].map(|side| judge.keys.keys(side));
    let fewest = keys[0].min(keys[1]);
    if fewest < MIN_KEYS {
        let [baseline, candidate] = keys;
        let doubts =
            format!("{candidate} keys of the candidate and {baseline} of the baseline were judged; it takes {MIN_KEYS} of each");
        return Findings { against: None, doubts: Some(doubts) };
    }
    let by = judge.keys.requests_per_key().sqrt();
    let (mut against, mut doubts) = (String::new(), None);
    let mut weigh = |text: String, is_sure: bool, is_likely: bool| {
        if is_sure {
            let _ = write!(against, "{}{text}", if against.is_empty() { "" } else { "; " });
        } else if is_likely {
            doubts = Some(format!("{text}, which may be chance"));
        }
    };
    if let Some(limit) = limits.errors.on() {
        let shares = judge.failed.each_ref().map(|share| (share, share.estimate()));
        let [(baseline, of_baseline), (candidate, of_candidate)] = &shares;
        let (low, _) = widened(of_candidate, by, false);
        let (_, high) = widened(of_baseline, by, false);
        let [theirs, ours] = [of_baseline, of_candidate].map(|estimate| estimate.value.unwrap_or_default());
        let text = format!(
            "{} of {} requests to the candidate failed ({:.2} %), of the baseline's {} of {} ({:.2} %); the limit is {limit} more",
            candidate.hits(),
            candidate.trials(),
            100.0 * ours,
            baseline.hits(),
            baseline.trials(),
            100.0 * theirs
        );
        weigh(text, low - high > limit.get(), ours - theirs > limit.get());
    }
    let mut missing = None;
    if let Some((limit, outputs)) = limits.mismatch.on().zip(outputs) {
        let (share, keys) = (outputs.mismatched.estimate(), outputs.keys());
        let (low, high) = widened(&share, outputs.per_key().sqrt(), false);
        let (hits, trials) = (outputs.mismatched.hits(), outputs.mismatched.trials());
        let value = share.value.unwrap_or_default();
        let text = format!(
            "{hits} of {trials} compared outputs differ ({:.2} %) [{:.2} %, {:.2} %]; the limit is {limit}",
            100.0 * value,
            100.0 * low,
            100.0 * high
        );
        weigh(text, keys >= MIN_KEYS && low > limit.get(), value > limit.get());
        if keys < MIN_KEYS {
            missing = Some(format!("outputs of {keys} keys were compared; it takes {MIN_KEYS}"));
        }
    }
    let report = judge.all.total();
    if let Some(report) = &report {
        let ratios = [
            ("p50", limits.p50_ratio, &report.paired_ratio.p50, MIN_KEYS),
            ("p99", limits.p99_ratio, &report.quantile_ratios.p99, MIN_KEYS_OF_TAIL),
        ];
        for (name, limit, ratio, min_keys) in ratios {
            let Some(limit) = limit.on() else { continue };
            let (low, high) = widened(ratio, by, true);
            let (value, pairs) = (ratio.value.unwrap_or(low), report.pairs);
            let text = match ratio.value {
                Some(_) => format!(
                    "{name} of the candidate is {value:.3}× the baseline's [{low:.3}, {high:.3}] in {pairs} pairs; the limit is {limit}×"
                ),
                None => format!(
                    "{name} of the candidate is that of a request without an answer, in {pairs} pairs; the limit is {limit}×"
                ),
            };
            weigh(text, fewest >= min_keys && low > limit.get(), value > limit.get());
        }
    }
    let too_early = report.as_ref().is_none_or(|report| report.is_too_early);
    if too_early && doubts.is_none() {
        let pairs = report.map_or(0, |report| report.pairs);
        doubts = Some(format!("too early to say after {pairs} pairs"));
    }
    let doubts = doubts.or(missing);
    Findings { against: Some(against).filter(|text| !text.is_empty()), doubts }
}

/// The failed requests of a side, all of its requests, and the share.
pub(crate) fn failures(judge: &SplitJudge, side: PairSide) -> (u64, u64, IntervalEstimate) {
    let share = &judge.failed[side_index(side)];
    (share.hits(), share.trials(), share.estimate())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_widened_about_the_estimate() {
        let ratio = IntervalEstimate { value: Some(1.2), low: 1.1, high: Some(1.3) };
        let (low, high) = widened(&ratio, 2.0, true);
        assert!((low - 1.1 * 1.1 / 1.2).abs() < 1e-12 && (high - 1.3 * 1.3 / 1.2).abs() < 1e-12);
        assert_eq!(widened(&ratio, 1.0, true), (1.1, 1.3));
        let share = IntervalEstimate { value: Some(0.1), low: 0.06, high: Some(0.2) };
        let (low, high) = widened(&share, 3.0, false);
        assert!(low == 0.0 && (high - 0.4).abs() < 1e-12);
        let unknown = IntervalEstimate { value: Some(1.0), low: 0.0, high: None };
        assert_eq!(widened(&unknown, 2.0, true), (0.0, f64::INFINITY));
    }
}
