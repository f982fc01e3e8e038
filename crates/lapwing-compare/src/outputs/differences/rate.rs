//! Rates of answers, with Wilson's interval (E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
//! 1927): p̃ = (k + z²/2) / (n + z²), half its width z/(n + z²) · √(k(n − k)/n + z²/4).

/// `k` answers of `n`.
pub(crate) type Rate = (u64, u64);

/// How sure a rate must be above another one: three standard deviations each.
pub(crate) const Z_BLAME: f64 = 3.0;
/// For the interval that is shown, 95 %.
pub(crate) const Z_SHOWN: f64 = 1.959_963_984_540_054;

/// The interval of a rate; from 0 to 1 if there is no answer.
pub(crate) fn wilson((k, n): Rate, z: f64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (k, n, z2) = (k as f64, n as f64, z * z);
    let centre = (k + z2 / 2.0) / (n + z2);
    let half = z / (n + z2) * (k * (n - k) / n + z2 / 4.0).max(0.0).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: the bounds are the rates from which the observed one is `z` standard deviations away.
    #[test]
    fn bounds_solve_the_score_equation() {
        for (k, n) in [(3, 100), (1, 2), (500, 1000), (0, 10), (10, 10)] {
            for z in [Z_SHOWN, Z_BLAME] {
                let (low, high) = wilson((k, n), z);
                let observed = k as f64 / n as f64;
                for bound in [low, high] {
                    let away = (observed - bound).abs() - z * (bound * (1.0 - bound) / n as f64).sqrt();
                    assert!(away.abs() < 1e-9, "{k}/{n} {z}: {bound}");
                }
                assert!(low <= observed && observed <= high && (low < high));
            }
        }
        assert_eq!(wilson((0, 0), 3.0), (0.0, 1.0));
    }
}
