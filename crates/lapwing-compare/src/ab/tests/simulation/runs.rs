//! One seeded run: pairs at a steady rate, a look after each.

use std::time::Duration;

use super::noise::{Noise, Random, SideNoise};
use super::rivals::Rivals;
use super::screen::{Method, Screen};
use crate::ab::Verdict;
use crate::ab::bins::ratio_bin;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) noise: Noise,
    /// The relative noise of each side, 0.05 for 5 %.
    pub(crate) scale: f64,
    /// The true ratio of the medians, candidate to baseline.
    pub(crate) ratio: f64,
    pub(crate) pairs_per_s: u64,
    pub(crate) pairs: u64,
    /// How many pods share the candidate's noise; each has its own baseline.
    pub(crate) pods: usize,
    pub(crate) first_block: Duration,
}

impl Setting {
    /// Baseline against itself: 100 pairs a second, 5 % of noise on each side, 10⁵ pairs.
    pub(crate) const fn same(noise: Noise) -> Self {
        let first_block = Duration::from_secs(1);
        Self { noise, scale: 0.05, ratio: 1.0, pairs_per_s: 100, pairs: 100_000, pods: 1, first_block }
    }

    /// When pair `i` is recorded.
    pub(crate) fn time(&self, i: u64) -> Duration {
        Duration::from_nanos(i * 1_000_000_000 / self.pairs_per_s)
    }
}

/// The pairs of a run.
pub(crate) struct Pairs {
    setting: Setting,
    random: Random,
    baselines: Vec<SideNoise>,
    candidate: SideNoise,
    i: u64,
}

impl Pairs {
    pub(crate) fn new(setting: Setting, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let step_s = 1.0 / setting.pairs_per_s as f64;
        let mut side = |step_s| SideNoise::new(setting.noise, setting.scale, step_s, &mut random);
        let candidate = side(step_s);
        let baselines = (0..setting.pods).map(|_| side(setting.pods as f64 * step_s)).collect();
        Self { setting, random, baselines, candidate, i: 0 }
    }

    /// The latencies of the next pair in nanoseconds, about 1 ms.
    pub(crate) fn next(&mut self) -> (u64, u64) {
        let now_s = self.i as f64 / self.setting.pairs_per_s as f64;
        let pod = self.i as usize % self.setting.pods;
        self.i += 1;
        let baseline = self.baselines[pod].next(now_s, &mut self.random);
        let candidate = self.candidate.next(now_s, &mut self.random);
        // heavy tails reach beyond what a latency can be
        let ns = |ratio: f64, noise: f64| (1e6 * ratio * noise.exp()).round().clamp(1.0, 1e12) as u64;
        (ns(1.0, baseline), ns(self.setting.ratio, candidate))
    }
}

/// What a run to its end showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    /// After how many pairs the verdict was first each of these.
    pub(crate) first_same: Option<u64>,
    pub(crate) first_different: Option<u64>,
    /// Whether it was faster at some look and slower at another.
    pub(crate) has_flipped: bool,
    /// The same of the mixture over pairs alone.
    pub(crate) pairs_only_different: bool,
    pub(crate) rivals: Rivals,
}

/// Looks after every pair to the end of the run. Rivals are not computed unless asked for.
pub(crate) fn look_at_every_pair(setting: Setting, seed: u64, with_rivals: bool) -> Looks {
    let mut pairs = Pairs::new(setting, seed);
    let mut screen = Screen::new(setting.first_block);
    let mut looks = Looks::default();
    let mut seen = [false; 2];
    for i in 0..setting.pairs {
        screen.tick(setting.time(i));
        let (baseline_ns, candidate_ns) = pairs.next();
        screen.record(ratio_bin(baseline_ns, candidate_ns));
        // that the sides are the same matters only the first time
        let verdict = if looks.first_same.is_none() {
            screen.verdict()
        } else {
            screen.difference(Method::PairsAndBlocks).unwrap_or(Verdict::Undecided)
        };
        match verdict {
            Verdict::Undecided => {}
            Verdict::Same => looks.first_same = Some(i + 1),
            different => {
                looks.first_different = looks.first_different.or(Some(i + 1));
                seen[usize::from(different == Verdict::Slower)] = true;
            }
        }
        if with_rivals {
            looks.pairs_only_different = looks.pairs_only_different || screen.difference(Method::PairsOnly).is_some();
            looks.rivals.observe_pair((baseline_ns, candidate_ns), screen.pairs(), screen.wins_and_losses());
        }
    }
    looks.has_flipped = seen == [true; 2];
    looks
}

/// How a run ended that stops at its first verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// After how many pairs; `None` if there was no verdict to the end.
    pub(crate) pairs: Option<u64>,
    pub(crate) verdict: Verdict,
    /// Whether the true ratio lay outside the interval when it stopped.
    pub(crate) has_missed: bool,
}

/// Looks after every pair until there is a verdict.
pub(crate) fn stop_at_verdict(setting: Setting, seed: u64) -> Stop {
    let mut pairs = Pairs::new(setting, seed);
    let mut screen = Screen::new(setting.first_block);
    for i in 0..setting.pairs {
        screen.tick(setting.time(i));
        let (baseline_ns, candidate_ns) = pairs.next();
        screen.record(ratio_bin(baseline_ns, candidate_ns));
        let verdict = screen.verdict();
        if verdict != Verdict::Undecided {
            let (low, high) = screen.interval();
            return Stop { pairs: Some(i + 1), verdict, has_missed: setting.ratio < low || setting.ratio > high };
        }
    }
    Stop { pairs: None, verdict: Verdict::Undecided, has_missed: false }
}
