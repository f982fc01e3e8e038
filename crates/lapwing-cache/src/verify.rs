//! Whether answers from the cache are still what the server would say: some of those that were given are asked again, and the
//! answers compared.
//!
//! The share of stale answers has Wilson's interval of 95 %, which holds for few answers and shares near 0. It is looked at after
//! every answer; that makes a switch-off by chance somewhat likelier than 2.5 %, and the cache is off rather than wrong.

/// The quantile of the normal distribution that an interval of 95 % has on each side.
const Z: f64 = 1.959_963_984_540_054;

/// When the cache is switched off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StaleLimit {
    /// At the first stale answer.
    First,
    /// Once it is sure, by the interval, that more than this share is stale.
    Share(f64),
}

/// A share, and between which bounds it is with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareInterval {
    /// The share that was seen; 0 of none.
    pub share: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound; 1 of none.
    pub high: f64,
}

impl ShareInterval {
    /// Of `part` in `all`, by Wilson (1927).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn of(part: u64, all: u64) -> Self {
        if all == 0 {
            return Self { share: 0.0, low: 0.0, high: 1.0 };
        }
        let (n, share) = (all as f64, part.min(all) as f64 / all as f64);
        let z2 = Z * Z;
        let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        let low = if part == 0 { 0.0 } else { (middle - half).max(0.0) };
        let high = if part >= all { 1.0 } else { (middle + half).min(1.0) };
        Self { share, low, high }
    }
}

/// How an answer compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitCheck {
    /// The server says the same.
    Fresh,
    /// It says something else.
    Stale,
    /// It failed, which says nothing of the answer.
    Unanswered,
}

/// Answers that were asked again, since the last generation began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitVerification {
    fresh: u64,
    stale: u64,
    unanswered: u64,
}

impl HitVerification {
    /// Notes one. Whether the cache is to be switched off, and its answers forgotten.
    #[must_use]
    pub fn note(&mut self, check: HitCheck, limit: StaleLimit) -> bool {
        match check {
            HitCheck::Fresh => self.fresh += 1,
            HitCheck::Stale => self.stale += 1,
            HitCheck::Unanswered => self.unanswered += 1,
        }
        self.exceeds(limit)
    }

    /// Whether too many were stale.
    #[must_use]
    pub fn exceeds(&self, limit: StaleLimit) -> bool {
        match limit {
            StaleLimit::First => self.stale > 0,
            StaleLimit::Share(share) => self.stale > 0 && self.stale_share().low > share,
        }
    }

    /// How many were compared, and how many of them were stale.
    #[must_use]
    pub const fn compared(&self) -> (u64, u64) {
        (self.fresh + self.stale, self.stale)
    }

    /// How many the server did not answer.
    #[must_use]
    pub const fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// The share of stale answers.
    #[must_use]
    pub fn stale_share(&self) -> ShareInterval {
        ShareInterval::of(self.stale, self.fresh + self.stale)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn intervals_are_wilsons() {
        // as R's prop.test(x, n, correct = FALSE) gives them
        for (part, all, low, high) in
            [(0, 10, 0.0, 0.277_533), (1, 10, 0.017_876, 0.404_150), (50, 100, 0.403_832, 0.596_168), (10, 10, 0.722_467, 1.0)]
        {
            let interval = ShareInterval::of(part, all);
            assert!((interval.low - low).abs() < 1e-5 && (interval.high - high).abs() < 1e-5, "{part} of {all}: {interval:?}");
        }
        assert_eq!(ShareInterval::of(0, 0), ShareInterval { share: 0.0, low: 0.0, high: 1.0 });
        assert!(ShareInterval::of(0, 4_000).high < 0.001);
    }

    #[test]
    fn intervals_hold_in_95_of_100_runs() {
        let mut rng = StdRng::seed_from_u64(3);
        for truth in [0.01, 0.1, 0.5] {
            let runs = 2_000;
            let held = (0..runs).filter(|_| {
                let interval = ShareInterval::of((0..500).filter(|_| rng.random_bool(truth)).count() as u64, 500);
                interval.low <= truth && truth <= interval.high
            });
            let share = held.count() as f64 / f64::from(runs);
            assert!((0.93..=0.985).contains(&share), "{truth}: {share}");
        }
    }

    #[test]
    fn the_cache_is_switched_off_when_the_bound_says_so() {
        let mut first = HitVerification::default();
        assert!(!first.note(HitCheck::Fresh, StaleLimit::First) && !first.note(HitCheck::Unanswered, StaleLimit::First));
        assert!(first.note(HitCheck::Stale, StaleLimit::First));
        assert_eq!((first.compared(), first.unanswered()), ((2, 1), 1));
        // one in a hundred, where one in ten is allowed, and the other way round
        let off_after = |every: u64, share: f64| {
            let mut seen = HitVerification::default();
            (1..20_000).find(|at| {
                let check = if at % every == 0 { HitCheck::Stale } else { HitCheck::Fresh };
                seen.note(check, StaleLimit::Share(share))
            })
        };
        assert_eq!(off_after(100, 0.1), None);
        assert!(off_after(5, 0.01).is_some_and(|at| at <= 20), "{:?}", off_after(5, 0.01));
        let mut none = HitVerification::default();
        assert!((0..1_000).all(|_| !none.note(HitCheck::Fresh, StaleLimit::Share(0.0))));
        assert!(none.note(HitCheck::Stale, StaleLimit::Share(0.0)), "of none, one is more");
    }
}
