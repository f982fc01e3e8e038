//! What exchanges of a series take when nothing is wrong with them, and the resulting split of an exchange's time above its budget.

use super::observation::Observation;
use super::part::{Part, PartSet, Parts};
use super::samples::{Sample, Samples};
use lapwing_ledger::Work;

/// How many exchanges of a cost class must be known before its own mean is used.
const MIN_OF_CLASS: usize = 8;
/// The parts that are taken to grow on with the work beyond the largest class that is known.
const GROWING: PartSet = PartSet::of(&[
    Part::Ingress,
    Part::Hydration,
    Part::Preprocessing,
    Part::Forward,
    Part::Postprocessing,
    Part::Egress,
    Part::Undivided,
    Part::Send,
]);

/// The means of a series' exchanges, in nanoseconds by part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reference {
    /// Of the fastest tenth.
    fast: Parts,
    /// Between the quartiles of all.
    body: Parts,
    /// Between the quartiles of each cost class that is known well enough, with its mean work, the least first.
    classes: Vec<(f64, Parts)>,
}

/// An exchange's time above a limit, by the part that is to blame for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Excess {
    /// Nanoseconds by part; they sum to the time above the limit.
    pub(crate) parts: Parts,
    /// How much of it comes from more work than in the body.
    pub(crate) by_work_ns: f64,
}

impl Reference {
    /// Of a window's exchanges.
    pub(crate) fn of(samples: &Samples<'_>) -> Self {
        let body = mean(samples.between(0.25, 0.75).iter());
        let fast = mean(samples.between(0.0, 0.1).iter());
        let mut by_class: [Vec<Sample<'_>>; Work::CLASSES] = Default::default();
        for sample in samples.iter() {
            if let Some(of_class) = sample.seen.class().and_then(|class| by_class.get_mut(class)) {
                of_class.push(*sample);
            }
        }
        let known = by_class.into_iter().filter(|of_class| of_class.len() >= MIN_OF_CLASS);
        let classes = known.map(|of_class| {
            let of_class = Samples::new(of_class, 0);
            let middle = of_class.between(0.25, 0.75);
            let weight: f64 = middle.iter().map(|sample| sample.weight).sum();
            let work = middle.iter().map(|sample| sample.seen.work() * sample.weight).sum::<f64>() / weight;
            (work, mean(middle.iter()))
        });
        Self { fast, body, classes: classes.collect() }
    }

    /// The mean between the quartiles.
    pub(crate) const fn body(&self) -> &Parts {
        &self.body
    }

    /// What an exchange with this one's work takes: the means of the cost classes, and straight lines between them. Beyond the
    /// largest class that is known, the last line goes on; if only one is known, forward is proportional to the work.
    pub(crate) fn expected(&self, seen: &Observation) -> Parts {
        let work = seen.work();
        if seen.class().is_none() {
            return self.body;
        }
        let at = self.classes.partition_point(|(of_class, _)| *of_class < work);
        match (at.checked_sub(1).and_then(|before| self.classes.get(before)), self.classes.get(at)) {
            (Some((lower, least)), Some((upper, most))) => line((*lower, least), (*upper, most), work, PartSet::ALL),
            (None, Some((_, first))) => *first,
            (Some((upper, most)), None) => {
                let before = at.checked_sub(2).and_then(|before| self.classes.get(before));
                if let Some((lower, least)) = before {
                    return line((*lower, least), (*upper, most), work, GROWING);
                }
                let mut expected = *most;
                expected[Part::Forward as usize] *= work / upper;
                expected
            }
            (None, None) => self.body,
        }
    }

    /// Splits the time of an exchange above `limit_ns`; `None` if there is none.
    ///
    /// From the top: what it takes beyond exchanges of its work goes to the parts that exceed theirs; what its work takes beyond
    /// the body goes to the parts that grow with the work; what the body takes beyond the fastest goes to the parts that differ
    /// there; and what even the fastest take above the limit goes to the parts as the fastest have them. In each step a part is
    /// charged in proportion to how much it exceeds, so a part that is large everywhere is not to blame for the tail.
    pub(crate) fn split(&self, seen: &Observation, limit_ns: f64) -> Option<Excess> {
        let parts = seen.parts();
        let total: f64 = parts.iter().sum();
        let mut left = total - limit_ns;
        if left <= 0.0 || !left.is_finite() {
            return None;
        }
        let expected = self.expected(seen);
        let steps = [(&parts, &expected), (&expected, &self.body), (&self.body, &self.fast)];
        let mut excess = Excess::default();
        for (at, (more, less)) in steps.into_iter().enumerate() {
            let rise = more.iter().sum::<f64>() - less.iter().sum::<f64>();
            let share = rise.clamp(0.0, left);
            if charge(&mut excess.parts, share, |part| more[part] - less[part]) {
                left -= share;
                excess.by_work_ns += if at == 1 { share } else { 0.0 };
            }
        }
        if left > 0.0 && !charge(&mut excess.parts, left, |part| self.fast[part]) {
            charge(&mut excess.parts, left, |part| parts[part]);
        }
        Some(excess)
    }
}

/// Distributes `ns` in proportion to what is above zero; false if nothing is.
fn charge(parts: &mut Parts, ns: f64, by: impl Fn(usize) -> f64) -> bool {
    let sum: f64 = (0..Part::COUNT).map(|part| by(part).max(0.0)).sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return false;
    }
    for (part, charged) in parts.iter_mut().enumerate() {
        *charged += ns * by(part).max(0.0) / sum;
    }
    true
}

/// A point on the line through two means; parts that do not grow keep the latter one.
fn line((lower, least): (f64, &Parts), (upper, most): (f64, &Parts), work: f64, growing: PartSet) -> Parts {
    let along = if upper > lower { (work - lower) / (upper - lower) } else { 1.0 };
    let mut parts = *most;
    for part in Part::ALL {
        let (from, to) = (least[part as usize], most[part as usize]);
        if growing.has(part) && (along <= 1.0 || to > from) {
            parts[part as usize] = from + (to - from) * along;
        }
    }
    parts
}

/// The weighted mean by part; zero without exchanges.
pub(crate) fn mean<'a>(samples: impl Iterator<Item = &'a Sample<'a>>) -> Parts {
    let (mut sums, mut weight) = (Parts::default(), 0.0);
    for sample in samples {
        let parts = sample.seen.parts();
        sums.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += ns * sample.weight);
        weight += sample.weight;
    }
    if weight > 0.0 {
        sums.iter_mut().for_each(|sum| *sum /= weight);
    }
    sums
}
