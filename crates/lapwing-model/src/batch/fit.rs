//! The expected time of a forward pass, fitted to those that ran: a fixed part and a part for each unit.
//!
//! Least squares over relative errors, so that small batches count as much as large ones; an observation's weight decays with
//! each newer one. Nanoseconds and units ([`super::CallCost::units`]). It models the mean, not the spread.

/// The part of its weight that an observation keeps at each newer one: half of it is left after about 44.
const KEPT: f64 = 1.0 - 1.0 / 64.0;
/// The least spread of sizes, as variance over squared mean, from which the two parts can be told apart.
const LEAST_SPREAD: f64 = 0.04;
/// An outlier (a page fault, a preempted thread) counts as at most this multiple of the expected time.
const OUTLIER: f64 = 4.0;

/// `fixed_ns + unit_ns * units`; neither is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The cost of any batch, in nanoseconds.
    pub fixed_ns: f64,
    /// The cost of each unit, in nanoseconds.
    pub unit_ns: f64,
}

impl Line {
    /// The expected time of a forward of `units`, in nanoseconds.
    #[must_use]
    pub fn at(&self, units: f64) -> f64 {
        self.fixed_ns + self.unit_ns * units
    }
}

/// Weighted sums over the forwards seen, and the line through them.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    seen: u64,
    weight: f64,
    u: f64,
    uu: f64,
    t: f64,
    ut: f64,
    line: Option<Line>,
}

impl Fit {
    /// The line; `None` until batches of different sizes have run.
    #[must_use]
    pub fn line(&self) -> Option<Line> {
        self.line
    }

    /// The line without a fixed part, which batches of one size have; `None` before the first one.
    #[must_use]
    pub fn proportion(&self) -> Option<Line> {
        (self.weight > 0.0).then(|| Line { fixed_ns: 0.0, unit_ns: self.t / self.u })
    }

    /// The expected time of a forward pass of `units`, in nanoseconds; zero before the first one. Without a line, the time of
    /// the batches seen, scaled in proportion for a larger one.
    #[must_use]
    pub fn forward_ns(&self, units: usize) -> f64 {
        let units = units as f64;
        match self.line {
            Some(line) => line.at(units),
            None if self.weight > 0.0 => self.t / self.weight * (units * self.weight / self.u).max(1.0),
            None => 0.0,
        }
    }

    /// Records one forward pass.
    pub fn observe(&mut self, units: usize, forward_ns: u64) {
        let mut took = (forward_ns as f64).max(1.0);
        let expected = self.forward_ns(units);
        if self.seen >= 8 {
            took = took.min(expected * OUTLIER);
        }
        let scale = if self.seen == 0 { took } else { expected.max(1.0) };
        let (weight, units) = (scale.powi(-2), units.max(1) as f64);
        for (sum, of) in [
            (&mut self.weight, 1.0),
            (&mut self.u, units),
            (&mut self.uu, units * units),
            (&mut self.t, took),
            (&mut self.ut, units * took),
        ] {
            *sum = *sum * KEPT + weight * of;
        }
        self.seen += 1;
        self.line = self.solve();
    }

    fn solve(&self) -> Option<Line> {
        let (u, t) = (self.u / self.weight, self.t / self.weight);
        let spread = self.uu / self.weight - u * u;
        if spread < LEAST_SPREAD * u * u {
            // sizes too alike to tell the parts apart: the fixed part stays as it was, the rest follows
            let fixed_ns = self.line?.fixed_ns.min(t);
            return Some(Line { fixed_ns, unit_ns: (t - fixed_ns) / u });
        }
        let unit_ns = (self.ut / self.weight - u * t) / spread;
        let fixed_ns = t - unit_ns * u;
        Some(match (fixed_ns < 0.0, unit_ns < 0.0) {
            (true, _) => Line { fixed_ns: 0.0, unit_ns: self.ut / self.uu },
            (_, true) => Line { fixed_ns: t, unit_ns: 0.0 },
            _ => Line { fixed_ns, unit_ns },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, wanted: f64, within: f64) {
        assert!((value - wanted).abs() <= within * wanted, "{value} is not within {within} of {wanted}");
    }

    #[test]
    fn finds_both_parts_and_follows_a_change() {
        let mut fit = Fit::default();
        for i in 0..100_u64 {
            let units = 1 + (i * 37) % 200;
            fit.observe(units as usize, 240_000 + 25_000 * units);
        }
        let line = fit.line().unwrap();
        near(line.fixed_ns, 240_000.0, 1e-6);
        near(line.unit_ns, 25_000.0, 1e-6);
        for i in 0..600_u64 {
            let units = 1 + (i * 37) % 200;
            fit.observe(units as usize, 480_000 + 100_000 * units);
        }
        let line = fit.line().unwrap();
        near(line.fixed_ns, 480_000.0, 0.02);
        near(line.unit_ns, 100_000.0, 0.02);
    }

    #[test]
    fn one_size_gives_no_line_and_keeps_the_fixed_part_that_was_known() {
        let mut fit = Fit::default();
        assert!(fit.forward_ns(7).abs() < f64::EPSILON);
        for _ in 0..50 {
            fit.observe(10, 1_000_000);
        }
        assert_eq!(fit.line(), None);
        near(fit.proportion().unwrap().unit_ns, 1e5, 1e-9);
        near(fit.forward_ns(10), 1e6, 1e-9);
        near(fit.forward_ns(1), 1e6, 1e-9);
        near(fit.forward_ns(40), 4e6, 1e-9);
        for i in 0..200_u64 {
            fit.observe(if i % 2 == 0 { 1 } else { 100 }, if i % 2 == 0 { 600_000 } else { 10_500_000 });
        }
        for _ in 0..5000 {
            fit.observe(100, 20_500_000);
        }
        let line = fit.line().unwrap();
        assert!(line.fixed_ns > 100_000.0, "{line:?}");
        near(line.at(100.0), 20_500_000.0, 1e-6);
    }

    #[test]
    fn neither_part_is_ever_negative() {
        let mut fit = Fit::default();
        for i in 1..100_u64 {
            fit.observe(i as usize, i * i * 1000);
            let line = fit.line();
            assert!(line.is_none_or(|l| l.fixed_ns >= 0.0 && l.unit_ns >= 0.0), "{line:?}");
        }
        let mut fit = Fit::default();
        for i in 1..100_u64 {
            fit.observe(i as usize, 1_000_000 / i);
            let line = fit.line();
            assert!(line.is_none_or(|l| l.fixed_ns >= 0.0 && l.unit_ns >= 0.0), "{line:?}");
        }
    }

    #[test]
    fn one_stall_moves_the_line_little() {
        let mut fit = Fit::default();
        for i in 0..100_usize {
            fit.observe(1 + i % 50, 200_000 + 10_000 * (1 + i as u64 % 50));
        }
        let before = fit.forward_ns(25);
        fit.observe(25, 5_000_000_000);
        near(fit.forward_ns(25), before, 0.15);
    }
}
