//! The interval of a share, from counts (E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927).

/// The quantile of a normal distribution for 95 %.
const Z: f64 = 1.96;

/// The interval that holds a share with a probability of 95 %, where `count` of `of` requests were seen; `[0, 1]` without any. Unlike the
/// share plus or minus its standard error it stays within zero and one, and is right for few requests and for none or all of them.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a share")]
pub fn share_interval(count: u64, of: u64) -> [f64; 2] {
    if of == 0 {
        return [0.0, 1.0];
    }
    let (n, share) = (of as f64, count.min(of) as f64 / of as f64);
    let (middle, whole) = (share + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    [((middle - half) / whole).max(0.0), ((middle + half) / whole).min(1.0)]
}

/// How many requests must have failed, unless all did.
const MIN_FAILED: u64 = 3;

/// Whether the share of `failed` in `of` is above `limit`, by the lower end of its interval. A single request that fails says it only if it
/// is all there is.
#[must_use]
pub fn exceeds_share(failed: u64, of: u64, limit: f64) -> bool {
    failed > 0 && (failed >= MIN_FAILED || failed >= of) && share_interval(failed, of)[0] > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probability that at most `count` of `of` are drawn with a probability of `share`.
    fn at_most(count: u64, of: u64, share: f64) -> f64 {
        let (mut term, mut sum) = ((1.0 - share).powi(of as i32), 0.0);
        for k in 0..=count {
            sum += term;
            term *= (of - k) as f64 / (k + 1) as f64 * share / (1.0 - share);
        }
        sum
    }

    #[test]
    fn intervals_of_known_counts() {
        let near = |[low, high]: [f64; 2], wanted: [f64; 2]| (low - wanted[0]).abs() < 5e-4 && (high - wanted[1]).abs() < 5e-4;
        // Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I
        assert!(near(share_interval(81, 263), [0.2553, 0.3662]));
        assert!(near(share_interval(15, 148), [0.0624, 0.1605]));
        assert!(near(share_interval(0, 20), [0.0, 0.1611]));
        assert!(near(share_interval(1, 29), [0.0061, 0.1718]));
        assert_eq!((share_interval(0, 0), share_interval(9, 9)[1], share_interval(0, 9)[0]), ([0.0, 1.0], 1.0, 0.0));
    }

    #[test]
    fn the_true_share_lies_outside_in_about_one_in_twenty() {
        for (of, share) in [(40, 0.1), (200, 0.02), (1_000, 0.01), (1_000, 0.5)] {
            let inside = (0..=of).filter(|count| {
                let [low, high] = share_interval(*count, of);
                low <= share && share <= high
            });
            let held: f64 = inside.map(|k| at_most(k, of, share) - if k > 0 { at_most(k - 1, of, share) } else { 0.0 }).sum();
            assert!((0.92..0.99).contains(&held), "{of}, {share}: {held}");
        }
    }
}
