//! A mixture of gamma distributions, and its quantiles.

/// One share of a mixture: its weight, its mean and its variance. A mean of zero is exactly zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) weight: f64,
    pub(crate) mean: f64,
    pub(crate) variance: f64,
}

impl Share {
    /// The probability of at most `value`, by the cube root that makes a gamma distribution nearly normal (Wilson and Hilferty, 1931).
    fn below(&self, value: f64) -> f64 {
        if self.mean <= 0.0 {
            return 1.0;
        }
        let ninth = self.variance / (self.mean * self.mean) / 9.0;
        if ninth <= 1e-12 {
            return if value >= self.mean { 1.0 } else { 0.0 };
        }
        normal_below(((value / self.mean).cbrt() - (1.0 - ninth)) / ninth.sqrt())
    }
}

pub(crate) fn mean(shares: &[Share]) -> f64 {
    let weight: f64 = shares.iter().map(|share| share.weight).sum();
    shares.iter().map(|share| share.weight * share.mean).sum::<f64>() / weight.max(1e-9)
}

/// The quantile of a mixture; zero for one without weight.
pub(crate) fn quantile(shares: &[Share], quantile: f64) -> f64 {
    let weight: f64 = shares.iter().map(|share| share.weight).sum();
    let below = |value: f64| shares.iter().map(|share| share.weight * share.below(value)).sum::<f64>();
    if weight <= 0.0 || below(0.0) >= quantile * weight {
        return 0.0;
    }
    let mut high = shares.iter().map(|share| share.mean + 12.0 * share.variance.sqrt()).fold(0.0, f64::max);
    let mut low = 0.0;
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if below(middle) < quantile * weight { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The probability that a standard normal variable is at most `value`, to 10⁻⁷ (Abramowitz and Stegun, 26.2.17).
fn normal_below(value: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * value.abs());
    let series = t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let above = (-0.5 * value * value).exp() / std::f64::consts::TAU.sqrt() * series;
    if value >= 0.0 { 1.0 - above } else { above }
}
