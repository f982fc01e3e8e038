//! The time in question of a series, by part and by block of time, and how sure its shares are, by resampling the blocks.

use super::part::{Part, PartSet, Parts};
use super::random::SeededRandom;
use super::reference::Reference;
use super::samples::{Sample, Samples};

/// How often the blocks of time are drawn again.
const DRAWS: usize = 200;
/// The seed of the draws: the same figures give the same diagnosis.
const SEED: u64 = 0x1a90_71c9;

/// Which exchanges are in question, and from where their time counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Yardstick {
    /// Those above a budget, in nanoseconds.
    Budget(f64),
    /// Those that take this many times what exchanges of their work take; what they take beyond those.
    Multiple(f64),
}

/// An exchange in question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Culprit<'a> {
    pub(crate) sample: Sample<'a>,
    /// Its time in question by part, in nanoseconds.
    pub(crate) parts: Parts,
    /// The sum.
    pub(crate) excess_ns: f64,
}

/// Where the time in question went.
#[derive(Debug, Default)]
pub(crate) struct Attribution<'a> {
    /// The exchanges in question, the fastest first.
    pub(crate) culprits: Vec<Culprit<'a>>,
    /// The time in question by part, in nanoseconds, with weights.
    pub(crate) parts: Parts,
    /// How much of it comes from more work than in the body.
    pub(crate) by_work_ns: f64,
    /// The same by part, for each block of time.
    pub(crate) blocks: Vec<Parts>,
    /// The same by part, for each draw of blocks.
    pub(crate) draws: Vec<Parts>,
}

impl<'a> Attribution<'a> {
    /// Of a window's exchanges.
    pub(crate) fn of(samples: &Samples<'a>, reference: &Reference, yardstick: Yardstick) -> Self {
        let mut found = Self::default();
        for sample in samples.iter() {
            let limit_ns = match yardstick {
                Yardstick::Budget(limit_ns) => limit_ns,
                Yardstick::Multiple(times) => {
                    let expected: f64 = reference.expected(sample.seen).iter().sum();
                    if sample.seen.total_ns as f64 <= times * expected {
                        continue;
                    }
                    expected
                }
            };
            let Some(excess) = reference.split(sample.seen, limit_ns) else { continue };
            found.by_work_ns += excess.by_work_ns * sample.weight;
            let excess_ns = excess.parts.iter().sum();
            found.culprits.push(Culprit { sample: *sample, parts: excess.parts, excess_ns });
        }
        let each = found.culprits.iter().map(|culprit| (culprit.sample, culprit.parts));
        let blocks = by_block(each, samples.blocks());
        found.parts = total(&blocks);
        found.draws = draw(&blocks);
        found.blocks = blocks;
        found
    }

    /// The time in question, in nanoseconds.
    pub(crate) fn total_ns(&self) -> f64 {
        self.parts.iter().sum()
    }
}

/// The share of these parts in the whole, `0..=1`; zero if the whole is zero.
pub(crate) fn share(parts: &Parts, of: PartSet) -> f64 {
    let whole: f64 = parts.iter().sum();
    if whole > 0.0 { (of.sum(parts) / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// The sums by block of time.
pub(crate) fn by_block<'a>(each: impl Iterator<Item = (Sample<'a>, Parts)>, blocks: usize) -> Vec<Parts> {
    let mut sums = vec![[0.0; Part::COUNT]; blocks];
    for (sample, parts) in each {
        if let Some(sum) = sums.get_mut(sample.block) {
            sum.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += ns * sample.weight);
        }
    }
    sums
}

/// The sum over all blocks.
pub(crate) fn total(blocks: &[Parts]) -> Parts {
    let mut sums = Parts::default();
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, ns)| *sum += ns);
    }
    sums
}

/// The sums over as many blocks as there are, drawn with replacement (Efron, 1979; whole blocks, because exchanges of one moment
/// depend on each other: Künsch, 1989).
pub(crate) fn draw(blocks: &[Parts]) -> Vec<Parts> {
    let mut random = SeededRandom::new(SEED);
    // most parts are zero everywhere
    let used: Vec<usize> = (0..Part::COUNT).filter(|part| blocks.iter().any(|block| block[*part] != 0.0)).collect();
    let dense: Vec<f64> = blocks.iter().flat_map(|block| used.iter().map(|part| block[*part])).collect();
    let mut sums = vec![0.0; used.len()];
    let one = |_| {
        sums.fill(0.0);
        for _ in 0..blocks.len() {
            let block = random.below(blocks.len() as u64) as usize * used.len();
            let block = dense.get(block..block + used.len()).unwrap_or_default();
            sums.iter_mut().zip(block).for_each(|(sum, ns)| *sum += ns);
        }
        let mut parts = Parts::default();
        used.iter().zip(&sums).for_each(|(part, sum)| parts[*part] = *sum);
        parts
    };
    (0..DRAWS).map(one).collect()
}

/// The middle 95 % of a value over the draws; without draws, zero.
pub(crate) fn interval(draws: &[Parts], value: impl Fn(&Parts) -> f64) -> [f64; 2] {
    let mut values: Vec<f64> = draws.iter().map(value).filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((share * values.len() as f64) as usize).or(values.last()).copied().unwrap_or(0.0);
    [at(0.025), at(0.975)]
}
