//! The optimum of a model: how long its forward pass takes at best, by a cost line or by a device's roofline, and its name.
//!
//! By a roofline a pass of `u` units takes `max(F·u / P, (W + B·u) / BW)`: operations over the device's peak, or bytes over its
//! bandwidth, whichever is longer (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009). Of a model that generates
//! (unit: output token), the prompt is one pass, and each further token of the answer another one.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::demand::ModelDemand;
use super::line::CostLine;
use lapwing_ledger::{Unit, Work};

/// How the optimal time is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptimalTime {
    /// By a line over the units.
    Line(CostLine),
    /// By what the model asks of a device.
    Roofline {
        /// What the model asks for.
        demand: ModelDemand,
        /// The device's peak, in operations a second.
        flops_per_s: f64,
        /// Its memory's bandwidth, in bytes a second.
        bytes_per_s: f64,
    },
}

/// The least bytes of a forward pass, and the bandwidth that they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryTraffic {
    /// Bytes of any pass: the weights.
    pub fixed_bytes: f64,
    /// Bytes that each unit adds.
    pub bytes_per_unit: f64,
    /// Bytes a second that the memory delivers.
    pub bytes_per_s: f64,
}

/// How well batches use the device, by means over many of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchUse {
    /// The optimal time of a batch over its forward time: 1 is the optimum.
    pub efficiency: f64,
    /// The least bytes of a batch over what the memory could deliver in its forward time; `None` if the bytes are unknown.
    pub bandwidth: Option<f64>,
}

/// The optimum of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// What the time is derived from, in words that are shown with each figure.
    pub name: Arc<str>,
    /// The optimal time.
    pub time: OptimalTime,
    /// What it moves through memory; `None` if that is unknown.
    pub memory: Option<MemoryTraffic>,
}

impl OptimalTime {
    /// The unit.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        match self {
            Self::Line(line) => line.unit,
            Self::Roofline { demand, .. } => demand.unit,
        }
    }

    /// The time of one pass of `units`, in nanoseconds.
    #[must_use]
    pub fn pass_ns(&self, units: f64) -> f64 {
        match self {
            Self::Line(line) => line.at(units),
            Self::Roofline { demand, flops_per_s, bytes_per_s } => {
                (demand.flops_per_unit * units / flops_per_s).max(demand.bytes(units) / bytes_per_s) * 1e9
            }
        }
    }

    /// The time of the forward pass or passes of this work, in nanoseconds; `None` if an amount is unknown or zero.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time is right to a few digits")]
    pub fn of(&self, work: &Work) -> Option<f64> {
        let of = |unit| work.get(unit).map(|(amount, _)| amount).filter(|amount| *amount > 0);
        let amount = of(self.unit())?;
        match self {
            Self::Roofline { demand, .. } if demand.unit == Unit::OutputToken => {
                // sequences that are generated at once share a pass for each of their tokens; the prompt's pass makes the first
                let sequences = work.sequences.max(1);
                let passes = amount.div_ceil(sequences) - 1;
                Some(self.pass_ns(of(Unit::InputToken)? as f64) + passes as f64 * self.pass_ns(sequences as f64))
            }
            _ => Some(self.pass_ns(amount as f64)),
        }
    }
}

impl Optimum {
    /// The time of the forward of this work in picoseconds, as [`OptimalTime::of`]; `None` also if it is not above zero.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, and is not negative")]
    pub fn forward_ps(&self, work: &Work) -> Option<NonZeroU64> {
        NonZeroU64::new((self.time.of(work)? * 1e3).round() as u64)
    }

    /// How well batches of `units` that take `forward_ns` use the device. `None` for a model that generates, whose batches change
    /// from token to token, and if either is not above zero.
    #[must_use]
    pub fn batch_use(&self, units: f64, forward_ns: f64) -> Option<BatchUse> {
        let is_positive = |value: f64| value > 0.0 && value.is_finite();
        if self.time.unit() == Unit::OutputToken || !is_positive(units) || !is_positive(forward_ns) {
            return None;
        }
        let bandwidth = |memory: MemoryTraffic| {
            (memory.fixed_bytes + memory.bytes_per_unit * units) / (memory.bytes_per_s * forward_ns / 1e9)
        };
        Some(BatchUse { efficiency: self.time.pass_ns(units) / forward_ns, bandwidth: self.memory.map(bandwidth) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::Basis;

    /// 10⁶ operations and 100 bytes a unit, 10⁶ bytes of weights; 10¹² operations and 10⁹ bytes a second.
    fn roofline(unit: Unit) -> Optimum {
        let demand = ModelDemand { unit, flops_per_unit: 1e6, weight_bytes: 1e6, bytes_per_unit: 100.0 };
        let memory = MemoryTraffic { fixed_bytes: 1e6, bytes_per_unit: 100.0, bytes_per_s: 1e9 };
        let time = OptimalTime::Roofline { demand, flops_per_s: 1e12, bytes_per_s: 1e9 };
        Optimum { name: "roofline".into(), time, memory: Some(memory) }
    }

    fn work(amounts: &[(Unit, u64)]) -> Work {
        let mut work = Work::default();
        amounts.iter().for_each(|(unit, amount)| work.set(*unit, *amount, Basis::Reported));
        work
    }

    #[test]
    fn a_pass_takes_as_long_as_its_slower_limit() {
        let rows = roofline(Unit::Row);
        // 1 ms of weights, and 100 ns of bytes; 1 µs of operations
        assert_eq!(rows.forward_ps(&work(&[(Unit::Row, 1)])).map(NonZeroU64::get), Some(1_000_100_000));
        // 10 ms of operations, 2 ms of bytes
        assert_eq!(rows.forward_ps(&work(&[(Unit::Row, 10_000)])).map(NonZeroU64::get), Some(10_000_000_000));
        assert_eq!([work(&[]), work(&[(Unit::Row, 0)])].map(|work| rows.forward_ps(&work)), [None; 2]);
    }

    #[test]
    fn a_generated_answer_is_a_pass_for_its_prompt_and_one_for_each_further_token() {
        let tokens = roofline(Unit::OutputToken);
        let of = |input, output, sequences| {
            let mut work = work(&[(Unit::InputToken, input), (Unit::OutputToken, output)]);
            work.sequences = sequences;
            tokens.time.of(&work).unwrap()
        };
        let (prompt, one, two) = (1_010_000.0, 1_000_100.0, 1_000_200.0);
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-3, "{found} {wanted}");
        near(of(100, 1, 0), prompt);
        near(of(100, 11, 1), prompt + 10.0 * one);
        // two answers of six tokens each share five passes of two tokens
        near(of(100, 12, 2), prompt + 5.0 * two);
        assert_eq!(tokens.time.of(&work(&[(Unit::OutputToken, 5)])), None, "its prompt is unknown");
    }

    #[test]
    fn batches_use_the_device_as_far_as_they_keep_to_its_limits() {
        let used = roofline(Unit::Row).batch_use(10_000.0, 40e6).unwrap();
        assert!((used.efficiency - 0.25).abs() < 1e-12 && (used.bandwidth.unwrap() - 0.05).abs() < 1e-12);
        let line = CostLine { fixed_ns: 1e6, ns_per_unit: 1e3, unit: Unit::Row };
        let line = Optimum { name: "line".into(), time: OptimalTime::Line(line), memory: None };
        assert_eq!(line.batch_use(1_000.0, 4e6), Some(BatchUse { efficiency: 0.5, bandwidth: None }));
        assert_eq!(line.forward_ps(&work(&[(Unit::Row, 1_000)])).map(NonZeroU64::get), Some(2_000_000_000));
        assert_eq!([line.batch_use(0.0, 1.0), line.batch_use(1.0, 0.0), line.batch_use(f64::NAN, 1.0)], [None; 3]);
        assert_eq!(roofline(Unit::OutputToken).batch_use(8.0, 1e6), None);
    }

    #[test]
    fn nothing_takes_no_time_and_has_no_debt() {
        let line = CostLine { fixed_ns: 0.0, ns_per_unit: 0.0, unit: Unit::Row };
        let free = Optimum { name: "free".into(), time: OptimalTime::Line(line), memory: None };
        assert_eq!(free.forward_ps(&work(&[(Unit::Row, 3)])), None);
    }
}
