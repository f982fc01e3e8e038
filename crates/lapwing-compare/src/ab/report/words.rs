//! The report in words, for people: what is known with its bounds, "too early" where nothing is, and what is assumed.

use super::{IntervalEstimate, LatencyReport, MismatchReport, Verdict};
use crate::outputs::OutputsVerdict;

/// Under which conditions the intervals hold, and what cannot be concluded.
pub const ASSUMPTIONS: &str = "All numbers hold at once with 95 % confidence, at every moment you look, provided that requests before and \
after resemble each other and that disturbances are short against the run (a tenth or less). The verdict is about the median \
request; p99 has its own bounds. A verdict reached in T seconds cannot know of episodes rarer than T: if one comes, the interval \
widens, and the verdict may return to undecided.";

/// One sentence on a candidate: the first stage in full, the others in short. Empty without stages.
///
/// "candidate `int8`: forward 1.43× faster at p50 [1.41, 1.46], 1.02× at p99 [0.97, 1.08], faster in 97 % of 12,400 pairs; total
/// 1.21× faster at p50 [1.19, 1.23]". Figures at p50 are medians of the ratio within a pair; at p99, ratios of the sides' p99.
#[must_use]
pub fn sentence(candidate: &str, stages: &[(&str, &LatencyReport)]) -> String {
    let Some(((stage, report), others)) = stages.split_first() else { return String::new() };
    let mut text = format!("candidate `{candidate}`: {stage} {}", report.median_in_words());
    if !report.is_too_early {
        text += &format!(", {}, {}", report.tail_in_words(), report.wins_in_words());
    }
    for (stage, report) in others {
        text += &format!("; {stage} {}", report.median_in_words());
    }
    let outputs = stages.iter().map(|(_, report)| &report.mismatches).max_by_key(|outputs| outputs.compared + outputs.unjudged);
    let reservations = [outputs.and_then(MismatchReport::reservation), report.failures_in_words()];
    text + &reservations.into_iter().flatten().collect::<String>()
}

impl LatencyReport {
    /// What else a reader must know, a line each: outputs, failures, dependence between requests.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.mismatches.compared + self.mismatches.unjudged > 0 {
            notes.push(self.mismatches.in_words() + &self.uncompared_in_words());
        }
        if self.baseline_failed + self.candidate_failed + self.both_failed > 0 {
            notes.push(format!(
                "failed alone: candidate {}, baseline {}; both: {} (left out)",
                count(self.candidate_failed),
                count(self.baseline_failed),
                count(self.both_failed)
            ));
        }
        if let Some(effective) = self.effective_pairs.filter(|_| self.are_pairs_dependent) {
            notes.push(format!(
                "warning: requests near in time are not independent: {} pairs are worth {}; the intervals allow for it if \
                 disturbances are short against the run",
                count(self.pairs),
                count(effective as u64)
            ));
        }
        notes
    }

    /// "1.43× faster at p50 [1.41, 1.46]", "the same within 2 % at p50: 0.1 to 0.9 % slower", or what it takes to say more.
    fn median_in_words(&self) -> String {
        let median = &self.paired_ratio.p50;
        match self.verdict {
            Verdict::Faster | Verdict::Slower => in_factors(median, self.verdict, &format!(" {} at p50", self.verdict.name())),
            Verdict::Same => format!("the same within 2 % at p50: {}", difference(median)),
            Verdict::Undecided if self.is_too_early => {
                format!("too early to say after {} pairs{}", count(self.pairs), self.more_in_words())
            }
            Verdict::Undecided => format!("undecided at p50: {}{}", difference(median), self.more_in_words()),
        }
    }

    /// How many answered pairs are in neither count, if that is more than what is still to come.
    fn uncompared_in_words(&self) -> String {
        let answered = self.pairs - self.baseline_failed - self.candidate_failed;
        let uncompared = answered.saturating_sub(self.mismatches.compared + self.mismatches.unjudged);
        let is_material = uncompared as f64 > OutputsVerdict::MAX_UNJUDGED * answered as f64;
        if is_material { format!("; {} more pairs were not compared", count(uncompared)) } else { String::new() }
    }

    /// That the candidate fails, where the median does not show it.
    fn failures_in_words(&self) -> Option<String> {
        let is_hidden = self.verdict != Verdict::Slower && self.candidate_failed as f64 >= MATERIAL * self.pairs as f64;
        let failed =
            || format!(", but it alone failed in {} of pairs", percent(self.candidate_failed as f64 / self.pairs as f64));
        (is_hidden && self.candidate_failed > 0).then(failed)
    }

    fn more_in_words(&self) -> String {
        match (self.further_pairs, self.further_seconds) {
            (Some(pairs), Some(seconds)) => format!(" (about {} more, {})", count(pairs), duration(seconds)),
            _ => String::new(),
        }
    }

    /// "1.02× at p99 [0.97, 1.08]" in the direction of the median's verdict, else "p99 3 % faster to 8 % slower".
    fn tail_in_words(&self) -> String {
        let tail = &self.quantile_ratios.p99;
        match self.verdict {
            _ if tail.is_unbounded() && self.tail_verdict == Verdict::Undecided => "too early for p99".to_owned(),
            Verdict::Faster | Verdict::Slower => in_factors(tail, self.verdict, " at p99"),
            Verdict::Same | Verdict::Undecided => format!("p99 {}", difference(tail)),
        }
    }

    fn wins_in_words(&self) -> String {
        let decided = self.wins + self.losses;
        let (name, pairs) = if self.verdict == Verdict::Slower { ("slower", self.losses) } else { ("faster", self.wins) };
        let tied = if self.ties > 0 { format!(" ({} more tied)", count(self.ties)) } else { String::new() };
        if decided == 0 {
            return format!("all {} pairs tied", count(self.ties));
        }
        format!("{name} in {} of {} pairs{tied}", percent(pairs as f64 / decided as f64), count(decided))
    }
}

/// From this share on, outputs that differ or failures are reported with the verdict on latency.
const MATERIAL: f64 = 0.01;

impl MismatchReport {
    /// The share of comparisons that could not be judged.
    fn unjudged_share(&self) -> f64 {
        self.unjudged as f64 / (self.compared + self.unjudged).max(1) as f64
    }

    /// What is said with latencies, which are not of the same work where outputs differ.
    fn reservation(&self) -> Option<String> {
        let all = count(self.compared + self.unjudged);
        let differing = self.rate.value.filter(|rate| *rate >= MATERIAL).map(|rate| format!("differ in {}", percent(rate)));
        let unjudged = Some(self.unjudged_share()).filter(|share| *share > OutputsVerdict::MAX_UNJUDGED);
        let unjudged = unjudged.map(|share| format!("cannot be compared in {}", percent(share)));
        let parts: Vec<String> = differing.into_iter().chain(unjudged).collect();
        (!parts.is_empty()).then(|| format!(", but its outputs {} of {all} comparisons", parts.join(" and ")))
    }

    fn in_words(&self) -> String {
        let all = self.compared + self.unjudged;
        if self.compared == 0 {
            return format!("outputs cannot be compared in any of {} comparisons", count(all));
        }
        if self.unjudged_share() > OutputsVerdict::MAX_UNJUDGED {
            let unjudged = percent(self.unjudged_share());
            let [differing, agreeing] = [self.mismatches, self.compared - self.mismatches].map(count);
            let all = count(all);
            return format!(
                "outputs cannot be compared in {unjudged} of {all} comparisons; {differing} differ, {agreeing} agree"
            );
        }
        let agree = |share: f64| percent(1.0 - share);
        let bound =
            self.rate.high.filter(|high| *high < 1.0).map_or(String::new(), |high| format!(" (at least {})", agree(high)));
        let of_all = |part: u64| percent(part as f64 / all as f64);
        let excused = match self.excused {
            0 => String::new(),
            excused => format!(", {} only within the upstream's own noise", of_all(excused)),
        };
        let unjudged = match self.unjudged {
            0 => String::new(),
            unjudged => format!(", and cannot be compared in {} more", of_all(unjudged)),
        };
        format!(
            "outputs agree in {}{bound} of {} comparisons{excused}{unjudged}; {} differ, in {} of {} time blocks",
            self.rate.value.map_or(String::new(), agree),
            count(self.compared),
            count(self.mismatches),
            count(self.blocks_with_mismatch),
            count(self.blocks)
        )
    }
}

/// How many times as fast, or as slow, with bounds; only the nearer bound where the estimate is not finite, because one side fails.
fn in_factors(ratio: &IntervalEstimate, direction: Verdict, what: &str) -> String {
    let directed = |ratio: f64| if direction == Verdict::Faster { 1.0 / ratio } else { ratio };
    let (one, other) = (directed(ratio.low), directed(ratio.high.unwrap_or(f64::INFINITY)));
    let (low, high) = (one.min(other), one.max(other));
    match ratio.value.map(directed).filter(|value| value.is_finite()) {
        Some(value) => {
            let digits = decimals(value);
            format!("{value:.digits$}×{what} [{low:.digits$}, {high:.digits$}]")
        }
        None => format!("over {low:.0$}×{what}", decimals(low)),
    }
}

/// A count with a comma before each group of three digits.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many decimals a factor and its bounds have: about three digits, one more near 1.
pub(crate) fn decimals(factor: f64) -> usize {
    match factor {
        100.0.. => 0,
        10.0.. => 1,
        0.85..1.15 => 3,
        _ => 2,
    }
}

/// A share in percent: whole between 1 and 99 %, with as many decimals near 0 and 100 % as distinguish it from them.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.min(100.0 - percent) {
        0.0 => format!("{percent:.0} %"),
        1.0.. => format!("{percent:.0} %"),
        0.01.. => format!("{percent:.2} %"),
        _ => format!("{percent:.4} %"),
    }
}

/// An interval of ratios as a difference: "0.1 to 0.9 % slower", "3.0 % faster to 8.0 % slower", "2.0 to 5.0 % faster".
pub(crate) fn difference(ratio: &IntervalEstimate) -> String {
    let percent = |ratio: f64| (100.0 * (ratio - 1.0)).abs();
    let (low, high) = (ratio.low, ratio.high.unwrap_or(f64::INFINITY));
    if high <= 1.0 {
        format!("{:.1} to {:.1} % faster", percent(high), percent(low))
    } else if low >= 1.0 {
        format!("{:.1} to {:.1} % slower", percent(low), percent(high))
    } else {
        format!("{:.1} % faster to {:.1} % slower", percent(low), percent(high))
    }
}

/// A time in seconds, minutes or hours, for people who decide whether to wait.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}
