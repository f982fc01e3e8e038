//! Rates of answers, with Wilson's interval (E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
//! 1927): p̃ = (k + z²/2) / (n + z²), half its width z/(n + z²) · √(k(n − k)/n + z²/4).

/// `k` answers of `n`.
pub(super) type Rate = (u64, u64);

/// How sure a rate must be above another one: three standard deviations each.
const Z_BLAME: f64 = 3.0;
/// For the interval that is shown, 95 %.
pub(super) const Z_SHOWN: f64 = 1.959_963_984_540_054;

/// The interval of a rate; from 0 to 1 if there is no answer.
pub(super) fn wilson((k, n): Rate, z: f64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (k, n, z2) = (k as f64, n as f64, z * z);
    let centre = (k + z2 / 2.0) / (n + z2);
    let half = z / (n + z2) * (k * (n - k) / n + z2 / 4.0).max(0.0).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// Whether the first rate is above the second beyond doubt.
pub(super) fn is_clearly_above(a: Rate, b: Rate) -> bool {
    wilson(a, Z_BLAME).0 > wilson(b, Z_BLAME).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_formula() {
        // statsmodels.stats.proportion.proportion_confint(3, 100, 0.05, "wilson")
        let (low, high) = wilson((3, 100), Z_SHOWN);
        assert!((low - 0.010_254_564_700_801_43).abs() < 1e-12, "{low}");
        assert!((high - 0.084_520_155_117_371_93).abs() < 1e-12, "{high}");
        assert_eq!(wilson((0, 0), 3.0), (0.0, 1.0));
        assert_eq!((wilson((0, 10), 3.0).0, wilson((10, 10), 3.0).1), (0.0, 1.0));
    }

    #[test]
    fn only_clear_excess_is_blamed() {
        assert!(!is_clearly_above((1000, 1000), (10, 10)));
        assert!(!is_clearly_above((32, 100), (30, 100)));
        assert!(is_clearly_above((500, 1000), (1, 1000)));
        assert!(!is_clearly_above((2, 2), (1, 1000)));
    }
}
