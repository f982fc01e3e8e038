//! Post-transforms: how scores become what a model answers with. They follow ONNX Runtime, which computes them in single precision
//! whatever the type of the scores.

use crate::attributes::Reason;

/// A function of all scores of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostTransform {
    None,
    Softmax,
    Logistic,
    /// A softmax that leaves scores of 0 alone.
    SoftmaxZero,
    Probit,
}

impl PostTransform {
    /// Reads the attribute of an operator before `TreeEnsemble`.
    pub(crate) fn from_word(word: &str) -> Result<Self, Reason> {
        Ok(match word {
            "NONE" => Self::None,
            "SOFTMAX" => Self::Softmax,
            "LOGISTIC" => Self::Logistic,
            "SOFTMAX_ZERO" => Self::SoftmaxZero,
            "PROBIT" => Self::Probit,
            other => return Err(format!("post_transform {other:?} is unknown")),
        })
    }

    /// Reads the attribute of `TreeEnsemble`. ONNX says 1 for a softmax and 2 for the logistic function; ONNX Runtime reads them the
    /// other way round, and what a model was tried with is what it means.
    pub(crate) fn from_number(number: i64) -> Result<Self, Reason> {
        Ok(match number {
            0 => Self::None,
            1 => Self::Logistic,
            2 => Self::Softmax,
            3 => Self::SoftmaxZero,
            4 => Self::Probit,
            other => return Err(format!("post_transform {other} is unknown")),
        })
    }

    /// Transforms the scores of one row, of which there are at least two.
    pub(crate) fn apply(self, scores: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Softmax => softmax(scores),
            Self::Logistic => scores.iter_mut().for_each(|score| *score = logistic(*score)),
            Self::SoftmaxZero => softmax_zero(scores),
            Self::Probit => scores.iter_mut().for_each(|score| *score = probit(*score)),
        }
    }
}

/// `1 / (1 + exp(-x))`, exact to both sides of 0.
pub(crate) fn logistic(score: f32) -> f32 {
    let positive = 1.0 / (1.0 + (-score.abs()).exp());
    if score < 0.0 { 1.0 - positive } else { positive }
}

fn maximum(scores: &[f32]) -> f32 {
    scores.iter().fold(f32::MIN, |most, score| if *score > most { *score } else { most })
}

/// A softmax, of the differences to the largest score.
pub(crate) fn softmax(scores: &mut [f32]) {
    let most = maximum(scores);
    let mut sum = 0.0;
    for score in &mut *scores {
        *score = (*score - most).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

fn softmax_zero(scores: &mut [f32]) {
    let most = maximum(scores);
    let scale = (-most).exp();
    let mut sum = 0.0;
    for score in &mut *scores {
        if *score > 0.000_000_1 || *score < -0.000_000_1 {
            *score = (*score - most).exp();
            sum += *score;
        } else {
            *score *= scale;
        }
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// The inverse of the normal distribution function, by Winitzki's approximation of the inverse error function.
pub(crate) fn probit(score: f32) -> f32 {
    const A: f32 = 0.147;
    let x = 2.0 * score - 1.0;
    let sign = if x < 0.0 { -1.0 } else { 1.0 };
    let log = ((1.0 - x) * (1.0 + x)).ln();
    let half = 2.0 / (std::f32::consts::PI * A) + 0.5 * log;
    let root = -half + (half * half - 1.0 / A * log).sqrt();
    std::f32::consts::SQRT_2 * sign * root.sqrt()
}

/// The scores of both classes where one score is a probability of the second: the first has what is left to 1.
pub(crate) fn both(score: f32, transform: PostTransform) -> [f32; 2] {
    match transform {
        PostTransform::Logistic => [logistic(-score), logistic(score)],
        PostTransform::Probit => [probit(score), 0.0],
        _ => [1.0 - score, score],
    }
}
