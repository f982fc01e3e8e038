//! From the summed weights of a row to its scores and its label. The rules for two classes, for classes without a weight and for base
//! values are those of ONNX Runtime, also where ONNX does not say.

use super::leaves::Aggregate;
use super::source::Number;
use crate::attributes::Reason;
use crate::labels::Label;
use crate::scores::{PostTransform, logistic, probit};

/// What an ensemble makes of the weights of its leaves.
#[derive(Debug)]
pub(crate) struct Finish<T> {
    pub(crate) aggregate: Aggregate,
    pub(crate) transform: PostTransform,
    pub(crate) base_values: Vec<T>,
    pub(crate) trees: usize,
    pub(crate) targets: usize,
}

/// How the label of a classifier of two classes comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TwoClasses {
    /// All weights are for one class and none is negative: they are probabilities.
    Probability,
    /// All weights are for one class: they are margins.
    Margin,
    /// Both classes have weights.
    Both,
}

/// A score that may be absent: an absent one reads as 0.
#[derive(Clone, Copy, Debug)]
struct Score<T> {
    value: T,
    is_there: bool,
}

impl<T: Number> Score<T> {
    fn single(self) -> f32 {
        if self.is_there { self.value.single() } else { 0.0 }
    }
}

impl<T: Number> Finish<T> {
    /// Checks the number of base values.
    pub(crate) fn check_base_values(&self, allowed: &[usize]) -> Result<(), Reason> {
        let given = self.base_values.len();
        if allowed.contains(&given) {
            Ok(())
        } else {
            Err(format!("base_values has {given} elements, expected one of {allowed:?}"))
        }
    }

    /// The results of a row of a regressor, appended to `out`.
    pub(crate) fn regression<O: Prediction<T>>(&self, sums: &[T], has_score: &[bool], out: &mut Vec<O>) {
        let averaged = |sum: T| if self.aggregate == Aggregate::Average { sum.over(self.trees) } else { sum };
        if let [sum] = *sums {
            let base = self.base_values.first().copied().unwrap_or_default();
            let value = averaged(sum).plus(base);
            // with one target ONNX Runtime knows no other transform
            out.push(if self.transform == PostTransform::Probit { O::of_single(probit(value.single())) } else { O::of(value) });
            return;
        }
        let is_minimum_or_maximum = matches!(self.aggregate, Aggregate::Minimum | Aggregate::Maximum);
        let value = |(target, sum): (usize, &T)| {
            let base = self.base_values.get(target).copied();
            let is_there = has_score.get(target).copied().unwrap_or(true);
            let sum = if is_minimum_or_maximum && !is_there { T::default() } else { averaged(*sum) };
            Score { value: base.map_or(sum, |base| sum.plus(base)), is_there }
        };
        let values = sums.iter().enumerate().map(value);
        if self.transform == PostTransform::None {
            out.extend(values.map(|score| if score.is_there { O::of(score.value) } else { O::of_single(0.0) }));
            return;
        }
        let mut scores: Vec<f32> = values.map(Score::single).collect();
        self.transform.apply(&mut scores);
        out.extend(scores.into_iter().map(O::of_single));
    }

    /// The label of a row of a classifier; its scores, one per class, are appended to `out`.
    pub(crate) fn classification(&self, sums: &[T], has_score: &[bool], two: TwoClasses, out: &mut Vec<f32>) -> Label {
        let score = |class: usize| Score { value: sums[class], is_there: has_score.get(class).copied().unwrap_or(true) };
        match sums.len() {
            1 => self.one_class(sums[0], out),
            2 => self.two_classes(score(0), score(1), two, out),
            classes => {
                let with_base = |(class, score): (usize, Score<T>)| match self.base_values.get(class) {
                    Some(base) if score.is_there => Score { value: score.value.plus(*base), is_there: true },
                    Some(base) => Score { value: *base, is_there: true },
                    None => score,
                };
                let scores = (0..classes).map(score).enumerate().map(with_base);
                let from = out.len();
                out.extend(scores.clone().map(Score::single));
                self.transform.apply(&mut out[from..]);
                Label::Class(largest(scores))
            }
        }
    }

    fn one_class(&self, sum: T, out: &mut Vec<f32>) -> Label {
        let score = self.base_values.first().map_or(sum, |base| sum.plus(*base));
        let single = score.single();
        out.push(if self.transform == PostTransform::Probit { probit(single) } else { single });
        Label::Sign(score > T::default())
    }

    fn two_classes(&self, mut first: Score<T>, mut second: Score<T>, two: TwoClasses, out: &mut Vec<f32>) -> Label {
        let mut has_one = !second.is_there;
        match *self.base_values {
            [_, base] if second.is_there => {
                second.value = base.plus(first.value);
                first.value = second.value.negated();
            }
            [base_first, base_second] => {
                has_one = false;
                second.value = second.value.plus(base_second);
                first.value = first.value.plus(base_first);
            }
            [base] => first.value = first.value.plus(base),
            _ => {}
        }
        let zero = T::default();
        let positive = match (first.is_there, second.is_there) {
            (_, true) => second.value,
            (true, false) => first.value,
            (false, false) => zero,
        };
        let label = match two {
            TwoClasses::Probability => Label::Class(usize::from(positive > T::HALF)),
            TwoClasses::Margin => Label::Class(usize::from(positive > zero)),
            TwoClasses::Both => Label::Sign(positive > zero),
        };
        if !has_one {
            let from = out.len();
            out.extend([first.single(), second.single()]);
            self.transform.apply(&mut out[from..]);
            return label;
        }
        let single = first.value.single();
        let scores = match (two, self.transform) {
            (_, PostTransform::Probit) => [probit(single), 0.0],
            // the class without a score has none
            (TwoClasses::Both, _) if !self.base_values.is_empty() => [single, 0.0],
            (_, PostTransform::Logistic) => [logistic(-single), logistic(single)],
            (TwoClasses::Probability, _) => [T::ONE.plus(first.value.negated()).single(), single],
            (TwoClasses::Margin | TwoClasses::Both, _) => [-single, single],
        };
        out.extend(scores);
        label
    }
}

/// The index of the largest score that is there, the first if several are.
fn largest<T: Number>(scores: impl Iterator<Item = Score<T>>) -> usize {
    let mut best: Option<(usize, T)> = None;
    for (class, score) in scores.enumerate().filter(|(_, score)| score.is_there) {
        if best.is_none_or(|(_, value)| score.value > value) {
            best = Some((class, score.value));
        }
    }
    best.map_or(0, |(class, _)| class)
}

/// The type of a regressor's results.
pub(crate) trait Prediction<T>: Copy {
    fn of(value: T) -> Self;
    fn of_single(single: f32) -> Self;
}

impl<T: Number> Prediction<T> for f32 {
    fn of(value: T) -> Self {
        value.single()
    }
    fn of_single(single: f32) -> Self {
        single
    }
}

impl Prediction<Self> for f64 {
    fn of(value: Self) -> Self {
        value
    }
    fn of_single(single: f32) -> Self {
        single.into()
    }
}
