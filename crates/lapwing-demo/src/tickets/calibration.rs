//! Calibration: estimates what share of texts with a given score really belongs to the class, by kernel regression over examples.
//!
//! A model's softmax is a score, not a probability. For each class, the examples' answers (is it this class?) are averaged, each
//! weighted by how near its score is: `rows × classes × examples` kernels, about 2000 a row.

use super::corpus::CLASSES;

/// The kernel's width, as a difference of scores.
const BANDWIDTH: f32 = 0.05;
/// Weight of a neutral example, so that the mean exists if no score is near.
const PRIOR: f32 = 1e-3;

/// One class's examples.
#[derive(Clone, Debug, Default)]
struct Examples {
    scores: Vec<f32>,
    /// 1 where the example is of the class, else 0.
    answers: Vec<f32>,
}

/// Maps scores to probabilities.
#[derive(Clone, Debug)]
pub(crate) struct Calibrator {
    classes: [Examples; CLASSES],
}

impl Calibrator {
    /// From the logits of examples, row by row, and the class of each row.
    pub(crate) fn fit(logits: &[f32], classes: impl Iterator<Item = usize>) -> Self {
        let mut calibrator = Self { classes: std::array::from_fn(|_| Examples::default()) };
        for (row, class) in logits.as_chunks::<CLASSES>().0.iter().zip(classes) {
            for (at, (score, examples)) in softmax(row).into_iter().zip(&mut calibrator.classes).enumerate() {
                examples.scores.push(score);
                examples.answers.push(f32::from(u8::from(at == class)));
            }
        }
        calibrator
    }

    /// The probability of each class for one row; they sum to 1.
    pub(crate) fn probabilities(&self, logits: &[f32; CLASSES]) -> [f32; CLASSES] {
        let scores = softmax(logits);
        let mut probabilities = [0.0; CLASSES];
        for ((probability, score), examples) in probabilities.iter_mut().zip(scores).zip(&self.classes) {
            let (mut weights, mut answers) = (PRIOR, PRIOR * score);
            for (example, answer) in examples.scores.iter().zip(&examples.answers) {
                let apart = (score - example) / BANDWIDTH;
                let weight = (-0.5 * apart * apart).exp();
                weights += weight;
                answers += weight * answer;
            }
            *probability = answers / weights;
        }
        let sum: f32 = probabilities.iter().sum();
        if sum > 0.0 { probabilities.map(|probability| probability / sum) } else { scores }
    }
}

fn softmax(logits: &[f32; CLASSES]) -> [f32; CLASSES] {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers = logits.map(|logit| (logit - greatest).exp());
    let sum: f32 = powers.iter().sum();
    powers.map(|power| power / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(best: usize, by: f32) -> [f32; CLASSES] {
        std::array::from_fn(|at| if at == best { by } else { 0.0 })
    }

    #[test]
    fn a_score_that_is_right_half_of_the_time_becomes_a_half() {
        // always sure of class 0, and right in every second row; else it is class 1
        let sure: Vec<f32> = (0..200).flat_map(|_| logits(0, 20.0)).collect();
        let calibrator = Calibrator::fit(&sure, (0..200).map(|row| row % 2));
        let probabilities = calibrator.probabilities(&logits(0, 20.0));
        assert!((probabilities[0] - 0.5).abs() < 0.01 && (probabilities[1] - 0.5).abs() < 0.01, "{probabilities:?}");
    }

    #[test]
    fn probabilities_sum_to_one_and_stay_finite() {
        let none = Calibrator::fit(&[], std::iter::empty());
        let one = Calibrator::fit(&logits(2, 3.0), std::iter::once(2));
        for calibrator in [none, one] {
            for row in [logits(2, 3.0), logits(5, 1e6), [0.0; CLASSES], [-1e30; CLASSES]] {
                let probabilities = calibrator.probabilities(&row);
                assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-4, "{probabilities:?}");
            }
        }
    }
}
