//! From measured figures to verdicts: tries the rules, orders what holds by the time that it explains, and says how sure that is.

use super::attribution::{Attribution, interval, share};
use super::part::{Part, PartBounds, PartSet, Parts, plain_bounds};
use super::quantity::Quantities;
use super::report::BoundVerdict;
use super::rules::{RULES, Rule, evidence};
use super::sureness::most_by_blocks;
use super::text::fill;

/// A rule that holds, and the parts that it explains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    pub(crate) rule: &'static Rule,
    pub(crate) claims: PartSet,
    /// The share of the time in question that it explains.
    pub(crate) share: f64,
    /// How often it explains the most when blocks of time are drawn again, and at most how often it does in single blocks, `0..=1`.
    pub(crate) confidence: f64,
}

/// The rules that hold, the one that explains most first.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    /// The share of the time in question that lies in parts of which nothing is known.
    pub(crate) unknown: f64,
}

impl Findings {
    /// Tries all rules.
    pub(crate) fn of(found: &Attribution<'_>, quantities: &Quantities) -> Self {
        let mut list = Vec::new();
        let mut claimed = PartSet::default();
        for rule in RULES {
            let claims = rule.claims.without(claimed);
            let share = share(&found.parts, claims);
            if share > 0.0 && share >= rule.least_share && rule.holds(quantities, &found.parts) {
                claimed = claimed.with(claims);
                list.push(Finding { rule, claims, share, confidence: 0.0 });
            }
        }
        let rest = PartSet::ALL.without(claimed);
        let claims: Vec<PartSet> = list.iter().map(|finding| finding.claims).collect();
        let sure = wins(&list, rest, &found.draws).into_iter().zip(most_by_blocks(found, &claims, rest));
        let sure: Vec<f64> = sure.map(|(won, most)| won.min(most)).collect();
        list.iter_mut().zip(sure).for_each(|(finding, confidence)| finding.confidence = confidence);
        list.sort_by(|a, b| b.share.total_cmp(&a.share));
        let unknown = Part::ALL.into_iter().filter(|part| rest.has(*part) && part.bound().is_none());
        let unknown = unknown.map(|part| share(&found.parts, PartSet::of(&[part]))).sum();
        Self { list, unknown }
    }

    /// What time above the budget is to be counted under, so that the totals say what the verdicts say: what a rule explains is bound by
    /// what the rule names.
    pub(crate) fn bounds(&self) -> PartBounds {
        let mut bounds = plain_bounds();
        for finding in &self.list {
            for part in Part::ALL.into_iter().filter(|part| finding.claims.has(*part)) {
                bounds[part as usize] = Some(finding.rule.bound);
            }
        }
        bounds
    }
}

/// How often each finding explains more than the others, and more than any part that none explains.
fn wins(list: &[Finding], rest: PartSet, draws: &[Parts]) -> Vec<f64> {
    let mut wins = vec![0.0; list.len()];
    let mut valid = 0.0_f64;
    for parts in draws {
        let best = list.iter().enumerate().map(|(at, finding)| (at, finding.claims.sum(parts)));
        let Some((at, most)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        if parts.iter().sum::<f64>() <= 0.0 {
            continue;
        }
        valid += 1.0;
        if rest.largest(parts).is_none_or(|part| most >= parts[part as usize]) {
            wins[at] += 1.0;
        }
    }
    wins.iter().map(|won| won / valid.max(1.0)).collect()
}

impl Finding {
    /// The verdict as it is said; `time` is the time in question in words.
    pub(crate) fn verdict(&self, found: &Attribution<'_>, quantities: &Quantities, time: &str) -> BoundVerdict {
        let share_interval = interval(&found.draws, |parts| share(parts, self.claims));
        BoundVerdict {
            bound: self.rule.bound,
            cause: self.rule.cause,
            share: self.share,
            share_interval,
            confidence: self.confidence,
            doubt: None,
            sentence: fill(self.rule.sentence, self.share, time, quantities),
            evidence: evidence(self.rule.conditions, self.rule.evidence, quantities, &found.parts),
            fixes: self.rule.fixes.iter().map(|fix| (*fix).to_owned()).collect(),
            rule: self.rule.name.to_owned(),
        }
    }
}
