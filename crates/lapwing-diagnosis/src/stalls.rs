//! Stalls: times in which requests were in flight and none of the series ended.

use super::attribution::Culprit;
use super::part::{Part, PartSet};
use super::timeline::Timeline;

/// How much of an exchange's time in question one silence must cover to explain it.
const COVERED: f64 = 0.6;
/// The least time in question that is considered, in nanoseconds: silences are known to 10 ms.
const MIN_EXCESS_NS: f64 = 50e6;
/// How many ends are expected in such a silence, at least, for it to mean anything.
const MIN_EXPECTED: f64 = 1.0;
/// What pauses do not explain even where nothing ends meanwhile: bytes on their way from and to the client.
const NOT_PAUSED: PartSet = PartSet::of(&[Part::Ingress, Part::Egress, Part::Backpressure, Part::Connect]);

/// The stalls of a window.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// The share of the time in question that stalls explain beyond what they would by chance, `0..=1`; NaN if too few requests
    /// end for silences to mean anything.
    pub(crate) share: f64,
    /// How many there were.
    pub(crate) count: usize,
    /// Their mean length, in nanoseconds; NaN without any.
    pub(crate) length_ns: f64,
    /// The median time from one to the next, in nanoseconds; NaN with fewer than two.
    pub(crate) period_ns: f64,
    /// How many exchanges in question each has, in the mean.
    pub(crate) requests: f64,
}

impl Stalls {
    /// Of the exchanges in question; `rate` is how many requests end in a second.
    ///
    /// An exchange is stalled if one silence covers most of its time in question. Where requests end at random with a rate `λ`, a
    /// silence of `s` lies within a time `T` with a probability of about `(1 + λ (T - s)) exp(-λ s)`; what is found beyond that
    /// counts.
    pub(crate) fn of(culprits: &[Culprit<'_>], timeline: &Timeline, rate: f64) -> Self {
        let (mut stalled, mut by_chance, mut all, mut informative) = (0.0, 0.0, 0.0, 0.0);
        let mut silences: Vec<(u64, u64, f64)> = Vec::new();
        for culprit in culprits {
            let weight = culprit.excess_ns * culprit.sample.weight;
            all += weight;
            let seen = culprit.sample.seen;
            let needed_ns = COVERED * culprit.excess_ns;
            let expected = rate * needed_ns / 1e9;
            if culprit.excess_ns < MIN_EXCESS_NS || expected < MIN_EXPECTED {
                continue;
            }
            informative += weight;
            let others = rate * (seen.total_ns as f64 - needed_ns).max(0.0) / 1e9;
            let chance = ((1.0 + others) * (-expected).exp()).min(1.0);
            by_chance += weight * chance;
            let (start, length_ns) = timeline.longest_silence(seen.arrived, seen.ended());
            let is_paused = NOT_PAUSED.sum(&culprit.parts) < 0.5 * culprit.excess_ns;
            if is_paused && length_ns as f64 >= needed_ns {
                stalled += weight;
                silences.push((start.as_ns(), length_ns, culprit.sample.weight));
            }
        }
        silences.sort_unstable_by_key(|(start, ..)| *start);
        let stalls = merged(&silences);
        let mut gaps: Vec<u64> = stalls.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        gaps.sort_unstable();
        let (count, is_known) = (stalls.len(), informative > 0.5 * all && by_chance < 0.9 * informative);
        Self {
            share: if is_known { ((stalled - by_chance) / (all - by_chance)).clamp(0.0, 1.0) } else { f64::NAN },
            count,
            length_ns: stalls.iter().map(|(_, length, _)| *length as f64).sum::<f64>() / count as f64,
            period_ns: gaps.get(gaps.len() / 2).map_or(f64::NAN, |gap| *gap as f64),
            requests: stalls.iter().map(|(.., requests)| requests).sum::<f64>() / count.max(1) as f64,
        }
    }
}

/// Silences that overlap are one stall: its start, its length, and how many requests it has.
fn merged(silences: &[(u64, u64, f64)]) -> Vec<(u64, u64, f64)> {
    let mut stalls: Vec<(u64, u64, f64)> = Vec::new();
    for (start, length, weight) in silences {
        match stalls.last_mut() {
            Some((from, longest, requests)) if *start < *from + *longest => {
                *longest = (*longest).max(*start + length - *from);
                *requests += weight;
            }
            _ => stalls.push((*start, *length, *weight)),
        }
    }
    stalls
}
