//! What a lever does to a figure, as blocks of time show it: in some it was on, in the others off, and a fair coin decided which.
//!
//! If the lever does nothing, a block's figure is what it is, whatever the coin showed. So given all figures, each coin is still fair, however
//! they depend on one another: drifting load, bursts and trends need no model. The same holds against "it adds this effect", of the
//! figures without it. This is randomisation inference, as for switchback experiments in Bojinov, Simchi-Levi and Zhao, Management Science
//! 69(7), 2023.
//!
//! The evidence is what one wins by betting on the coins: a block's residual `R` is its figure less the middle of both sides as those before show
//! it, and the stake grows by `exp(b z R) / cosh(b R)` with `z` = ±1 as the coin showed, which is 1 on average if the coin is fair. Such wealth
//! reaches `w` with a probability of at most 1/`w`, over all looks together (Ville); betting on symmetric residuals is de la Peña, Ann. Prob. 27, 1999.
//!
//! It takes [`EffectTracker::MIN_COINS`] that agree before anything is proved, whatever happens. The interval supposes that the effect is
//! constant, and that a block does not act on later ones.
//!
//! ```
//! use lapwing_compare::ab::EffectTracker;
//!
//! let mut effect = EffectTracker::of_ratio();
//! for (block, is_on) in [false, true, true, false, true, false, false, true, false, true, true, false, true].into_iter().enumerate() {
//!     let drift = 0.01 * block as f64;
//!     effect.record(20.0_f64.ln() + drift + if is_on { 0.2 } else { 0.0 }, is_on, true);
//! }
//! assert!(effect.interval(100.0, 400.0).0 > 0.0, "it makes the figure greater");
//! ```

use std::f64::consts::LN_2;

/// What is bet, in units of one over the mean residual, and the part of the stake that does: small bets win where noise is greater than the
/// effect, large ones where it is less. They are the same for ever: to choose them by the data voids validity.
const BETS: [(f64, f64); 4] = [(0.3, 0.2), (1.0, 0.3), (3.0, 0.3), (8.0, 0.2)];
/// Residuals count as so many times the mean one at most: one burst must not decide alone.
const GREATEST_RESIDUAL: f64 = 2.0;
/// How much a block moves the level. Neighbours in time are alike, and a single one is noise.
const LEVEL_WEIGHT: f64 = 0.35;

/// How an effect compares with a supposed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Greater,
    Less,
}

/// A supposed effect, and the logarithm of what was won against it by each bet on a greater and on a lesser one.
#[derive(Clone, Debug)]
struct SupposedEffect {
    effect: f64,
    /// The sum of the magnitudes of residuals.
    magnitudes: f64,
    won: [[f64; BETS.len()]; 2],
}

impl SupposedEffect {
    const fn new(effect: f64) -> Self {
        Self { effect, magnitudes: 0.0, won: [[0.0; BETS.len()]; 2] }
    }

    /// Bets on the `coins`th coin, which showed `side`: ±1.
    fn bet(&mut self, residual: f64, side: f64, coins: u32) {
        self.magnitudes += residual.abs();
        if self.magnitudes <= 0.0 {
            return;
        }
        let mean = self.magnitudes / f64::from(coins);
        let agreement = (side * residual / mean).clamp(-GREATEST_RESIDUAL, GREATEST_RESIDUAL);
        for (sign, won) in [1.0, -1.0].into_iter().zip(&mut self.won) {
            for ((bet, _), won) in BETS.into_iter().zip(won) {
                *won += LN_2 - (-2.0 * bet * sign * agreement).exp().ln_1p();
            }
        }
    }

    /// The logarithm of the evidence that the effect is greater, or less.
    fn evidence(&self, comparison: Comparison) -> f64 {
        let won = &self.won[usize::from(comparison == Comparison::Less)];
        let most = won.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = BETS.into_iter().zip(won).map(|((_, part), won)| part * (won - most).exp()).sum();
        most + sum.ln()
    }
}

/// What is known of the effect on one figure.
#[derive(Clone, Debug)]
pub struct EffectTracker {
    /// In rising order.
    supposed: Vec<SupposedEffect>,
    /// The level of late figures, and that of their sides as ±1.
    level: [f64; 2],
    /// The effect by what is known so far.
    effect: f64,
    /// The first figure of each side, off and on.
    first: [Option<f64>; 2],
    blocks: u32,
    coins: u32,
}

impl EffectTracker {
    /// Fewer prove nothing at 1/50.
    pub const MIN_COINS: u32 = 7;

    /// Of figures that are logarithms: effects are those of ratios, up to 4 and down to 1/4, in steps of half a per cent about 1.
    #[must_use]
    pub fn of_ratio() -> Self {
        Self::with_steps(0.005, 0.2, 1.1, 4.0_f64.ln())
    }

    /// Of figures that are shares: effects are differences, in steps of 0.05 points about 0.
    #[must_use]
    pub fn of_share() -> Self {
        Self::with_steps(0.0005, 0.01, 1.15, 1.0)
    }

    /// Supposes effects in equal steps up to `linear`, and from there in steps that grow.
    fn with_steps(step: f64, linear: f64, growth: f64, greatest: f64) -> Self {
        let mut above = Vec::new();
        let mut effect = step;
        while effect < greatest {
            above.push(effect);
            effect = if effect < linear - step / 2.0 { effect + step } else { effect * growth };
        }
        above.push(greatest);
        let below = above.iter().rev().map(|effect| -effect);
        let supposed = below.chain([0.0]).chain(above.iter().copied()).map(SupposedEffect::new).collect();
        Self { supposed, level: [0.0; 2], effect: 0.0, first: [None; 2], blocks: 0, coins: 0 }
    }

    /// Takes the figure of the next block. `is_coin`: a fair coin decided its side, and not what came before.
    pub fn record(&mut self, figure: f64, is_on: bool, is_coin: bool) {
        if !figure.is_finite() {
            return;
        }
        let side = if is_on { 1.0 } else { -1.0 };
        let has_both = self.first.iter().all(Option::is_some);
        if is_coin && has_both {
            self.coins += 1;
            // as much above the off side as below the on side, by what the blocks before show
            let middle = self.level[0] - self.effect / 2.0 * self.level[1];
            for supposed in &mut self.supposed {
                supposed.bet(figure - middle - supposed.effect / 2.0 * side, side, self.coins);
            }
        }
        self.blocks += 1;
        let weight = LEVEL_WEIGHT.max(1.0 / f64::from(self.blocks));
        for (level, now) in self.level.iter_mut().zip([figure, side]) {
            *level += weight * (now - *level);
        }
        self.first[usize::from(is_on)].get_or_insert(figure);
        match (self.estimate(), self.first) {
            (Some(effect), _) => self.effect = effect,
            (None, [Some(off), Some(on)]) if !has_both => self.effect = on - off,
            _ => {}
        }
    }

    /// How many coins there were that something was bet on.
    #[must_use]
    pub const fn coins(&self) -> u32 {
        self.coins
    }

    /// The effect between `low` and `high`: the true one is below `low` with a probability of at most 1/`above`, and beyond `high` of at most
    /// 1/`below`, over all looks together. Infinite as long as a bound is not known.
    #[must_use]
    pub fn interval(&self, above: f64, below: f64) -> (f64, f64) {
        let is_refuted = |one: &&SupposedEffect, comparison, wealth: f64| one.evidence(comparison) >= wealth.ln();
        let low = self.supposed.iter().take_while(|one| is_refuted(one, Comparison::Greater, above)).last();
        let high = self.supposed.iter().rev().take_while(|one| is_refuted(one, Comparison::Less, below)).last();
        let low = low.map_or(f64::NEG_INFINITY, |one| one.effect);
        (low, high.map_or(f64::INFINITY, |one| one.effect).max(low))
    }

    /// The effect that is contradicted least; `None` before the first coin.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        let balance = |one: &SupposedEffect| one.evidence(Comparison::Greater) - one.evidence(Comparison::Less);
        if self.coins == 0 {
            return None;
        }
        let mut before: Option<(f64, f64)> = None;
        for one in &self.supposed {
            let now = balance(one);
            if now <= 0.0 {
                return Some(match before {
                    Some((effect, above)) => effect + (one.effect - effect) * above / (above - now),
                    None => one.effect,
                });
            }
            before = Some((one.effect, now));
        }
        before.map(|(effect, _)| effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::tests::stream::SplitMix;

    const WEALTH: (f64, f64) = (50.0, 400.0);

    fn normal(random: &mut SplitMix) -> f64 {
        (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
    }

    /// Blocks whose level remembers `memory` of itself, with `noise` and an `effect`, and now and then a burst; what holds at each look.
    fn run(effect: f64, noise: f64, memory: f64, blocks: u32, seed: u64) -> Vec<(f64, f64)> {
        let (mut tracker, mut random, mut level) = (EffectTracker::of_ratio(), SplitMix::new(seed), 0.0);
        let looks = (0..blocks).map(|_| {
            level = memory * level + (1.0 - memory * memory).sqrt() * noise * normal(&mut random);
            let burst = if random.next().is_multiple_of(10) { 0.5 } else { 0.0 };
            let is_on = random.next().is_multiple_of(2);
            tracker.record(3.0 + level + burst + if is_on { effect } else { 0.0 }, is_on, true);
            tracker.interval(WEALTH.0, WEALTH.1)
        });
        looks.collect()
    }

    #[test]
    fn what_does_nothing_is_rarely_found_to_do_something_however_load_moves() {
        for memory in [0.0, 0.9] {
            let found = |seed: &u64| run(0.0, 0.1, memory, 60, *seed).iter().any(|(low, high)| *low >= 0.0 || *high <= 0.0);
            let wrong = (0..40).filter(found).count();
            assert!(wrong <= 2, "memory {memory}: {wrong} of 40, where one is allowed on average");
        }
    }

    #[test]
    fn the_interval_has_the_truth_at_every_look_and_narrows() {
        let missed = |seed: &u64| run(0.3, 0.1, 0.9, 60, *seed).iter().any(|(low, high)| *low > 0.3 || *high < 0.3);
        let wrong = (0..40).filter(missed).count();
        assert!(wrong <= 2, "{wrong} of 40");
        let (low, high) = run(0.3, 0.02, 0.5, 300, 1)[299];
        assert!(low > 0.2 && high < 0.4, "{low} {high}");
    }

    #[test]
    fn so_many_coins_that_agree_prove_and_fewer_do_not() {
        let of = |coins: u32| {
            let mut tracker = EffectTracker::of_ratio();
            for block in 0..coins + 2 {
                let is_on = block.is_multiple_of(2);
                tracker.record(if is_on { 1.1 } else { 1.0 }, is_on, true);
            }
            assert_eq!(tracker.coins(), coins, "the first of each side are not bet on");
            (tracker.interval(WEALTH.0, WEALTH.1).0 >= 0.0, tracker.estimate().unwrap())
        };
        let (fewer, enough) = (of(EffectTracker::MIN_COINS - 1), of(EffectTracker::MIN_COINS));
        assert!(!fewer.0 && enough.0 && (enough.1 - 0.1).abs() < 0.01, "{fewer:?} {enough:?}");
    }

    #[test]
    fn shares_that_never_differ_bound_the_difference() {
        let mut tracker = EffectTracker::of_share();
        assert_eq!((tracker.estimate(), tracker.interval(100.0, 400.0)), (None, (f64::NEG_INFINITY, f64::INFINITY)));
        (0..40_u32).for_each(|block| tracker.record(0.0, block.is_multiple_of(2), true));
        let (low, high) = tracker.interval(WEALTH.0, WEALTH.1);
        assert!((-0.001..=0.0).contains(&low) && (0.0..=0.001).contains(&high), "{low} {high}");
        assert!(tracker.estimate().unwrap().abs() < 1e-9);
        tracker.record(f64::NAN, true, true);
        assert_eq!(tracker.coins(), 38);
    }
}
