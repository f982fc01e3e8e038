//! The roofline model: how fast a plan could run at best, what limits it, and how much of that a run reached. Times are
//! nanoseconds, rates are per second; nothing is measured or clamped here.
//!
//! With `F` the FLOPs of a node, `B` its bytes, `P` the peak of its precision and `BW` the bandwidth of the memory that
//! holds the plan's weights and arena:
//!
//! - `t_opt = Σ over nodes of max(F/P, B/BW)`: each node at its own limit, one after the other;
//! - `bound` = compute, memory or launch: whichever of `Σ F/P`, `Σ B/BW` and `nodes · launch` is largest (the first of
//!   equals);
//! - `utilisation = rate / peak` of the bound. In a time `t`, that is `F/t` over `P` for compute, `B/t` over `BW` for
//!   memory, and nodes a second over `1/launch` for launch: in all three, the bound's sum over `t`. (So it also holds
//!   for plans of two precisions.) Above 1.05 the peak must be wrong, and is flagged as suspect.
//!
//! `F` counts matrix products only, like a plan's cost; other operations are bound by their bytes.

use super::Precision;
use crate::plan::Cost;

/// Above this utilisation the measured peak is considered wrong.
pub const SUSPECT: f64 = 1.05;

/// What limits a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory bandwidth.
    Memory,
    /// Launch overhead: many small nodes.
    Launch,
}

impl Bound {
    /// The name in tables, JSON lines and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Launch => "launch",
        }
    }
}

/// The peak rates of a processor or GPU for one plan; all above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Single-precision operations a second.
    pub fp32_per_s: f64,
    /// The same with tf32 factors. A processor without such operations has its single-precision rate here.
    pub tf32_per_s: f64,
    /// Half-precision operations a second; likewise.
    pub fp16_per_s: f64,
    /// 8-bit integer operations a second.
    pub int8_per_s: f64,
    /// Bytes a second, from the memory that holds the plan.
    pub bytes_per_s: f64,
    /// The overhead of a node that does no work, nanoseconds; may be zero.
    pub launch_ns: f64,
}

/// A plan under a ceiling, for one batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// FLOPs of all nodes.
    pub flops: u64,
    /// Bytes of all nodes.
    pub bytes: u64,
    /// `Σ F/P`, nanoseconds.
    pub compute_ns: f64,
    /// `Σ B/BW`, nanoseconds.
    pub memory_ns: f64,
    /// `nodes · launch`, nanoseconds.
    pub launch_ns: f64,
    /// `t_opt`, nanoseconds.
    pub optimum_ns: f64,
    /// The largest of the three sums.
    pub bound: Bound,
}

/// The rates and utilisation of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AchievedRates {
    /// FLOPs a second.
    pub flops_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// The bound's rate divided by its peak.
    pub utilisation: f64,
    /// `t_opt` divided by the elapsed time.
    pub optimum_share: f64,
    /// Whether the utilisation is above [`SUSPECT`].
    pub peak_suspect: bool,
}

/// Nanoseconds that an amount takes at a rate; zero for an amount of zero, whatever the rate.
fn ns(amount: u64, per_s: f64) -> f64 {
    if amount == 0 { 0.0 } else { amount as f64 / per_s * 1e9 }
}

impl Ceiling {
    /// Operations a second in this precision.
    #[must_use]
    pub const fn per_s(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Fp32 => self.fp32_per_s,
            Precision::Tf32 => self.tf32_per_s,
            Precision::Fp16 => self.fp16_per_s,
            Precision::Int8 => self.int8_per_s,
        }
    }
}

impl Roofline {
    /// The roofline of a plan's nodes, each with the precision of its products.
    #[must_use]
    pub fn of(nodes: impl IntoIterator<Item = (Precision, Cost)>, ceiling: &Ceiling) -> Self {
        let (mut flops, mut bytes) = (0u64, 0u64);
        let (mut compute_ns, mut memory_ns, mut launch_ns, mut optimum_ns) = (0.0, 0.0, 0.0, 0.0);
        for (precision, cost) in nodes {
            let (compute, memory) = (ns(cost.flops, ceiling.per_s(precision)), ns(cost.bytes, ceiling.bytes_per_s));
            flops += cost.flops;
            bytes += cost.bytes;
            compute_ns += compute;
            memory_ns += memory;
            launch_ns += ceiling.launch_ns;
            optimum_ns += compute.max(memory);
        }
        let bound = if compute_ns >= memory_ns && compute_ns >= launch_ns {
            Bound::Compute
        } else if memory_ns >= launch_ns {
            Bound::Memory
        } else {
            Bound::Launch
        };
        Self { flops, bytes, compute_ns, memory_ns, launch_ns, optimum_ns, bound }
    }

    /// The rates of a run that took `elapsed_ns`; `None` if that is not above zero.
    #[must_use]
    pub fn reached(&self, elapsed_ns: f64) -> Option<AchievedRates> {
        if !(elapsed_ns > 0.0 && elapsed_ns.is_finite()) {
            return None;
        }
        let bound_ns = match self.bound {
            Bound::Compute => self.compute_ns,
            Bound::Memory => self.memory_ns,
            Bound::Launch => self.launch_ns,
        };
        let utilisation = bound_ns / elapsed_ns;
        Some(AchievedRates {
            flops_per_s: self.flops as f64 * 1e9 / elapsed_ns,
            bytes_per_s: self.bytes as f64 * 1e9 / elapsed_ns,
            utilisation,
            optimum_share: self.optimum_ns / elapsed_ns,
            peak_suspect: utilisation > SUSPECT,
        })
    }
}

/// The gain of batching, from the median forward times without queue at the same precision, threads and length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Efficiency {
    /// `B · t(1) / t(B)`: the ratio of rows per second.
    pub speed_up: f64,
    /// Speed-up over `B`: 1 if a row in a batch of `B` takes `B` times less.
    pub efficiency: f64,
}

impl Efficiency {
    /// The gain of a batch of `batch` rows; `None` for an empty batch, or for a time that is not above zero.
    #[must_use]
    pub fn of(batch: usize, one_ns: f64, batch_ns: f64) -> Option<Self> {
        let timed = |ns: f64| ns > 0.0 && ns.is_finite();
        if batch == 0 || !timed(one_ns) || !timed(batch_ns) {
            return None;
        }
        Some(Self { speed_up: batch as f64 * one_ns / batch_ns, efficiency: one_ns / batch_ns })
    }
}

/// `1 - useful / executed`, in [0, 1): the share of executed tokens (or rows) that were padding. `None` if nothing was
/// useful, or more than was executed.
#[must_use]
pub fn padding_waste(useful: u64, executed: u64) -> Option<f64> {
    // Subtracts first: 1 - useful/executed would lose small shares.
    (useful > 0 && useful <= executed).then(|| (executed - useful) as f64 / executed as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILING: Ceiling = Ceiling {
        fp32_per_s: 100e9,
        tf32_per_s: 200e9,
        fp16_per_s: 800e9,
        int8_per_s: 400e9,
        bytes_per_s: 10e9,
        launch_ns: 50.0,
    };

    fn cost(flops: u64, bytes: u64) -> (Precision, Cost) {
        (Precision::Fp32, Cost { flops, other_ops: 999, bytes })
    }

    #[test]
    fn the_optimum_is_the_sum_of_each_nodes_own_limit() {
        // 1000 ns of compute, 100 of memory; then 10 of compute, 400 of memory.
        let roof = Roofline::of([cost(100_000, 1_000), cost(1_000, 4_000)], &CEILING);
        assert_eq!((roof.flops, roof.bytes), (101_000, 5_000));
        assert_eq!((roof.compute_ns, roof.memory_ns, roof.launch_ns), (1010.0, 500.0, 100.0));
        assert_eq!((roof.optimum_ns, roof.bound), (1400.0, Bound::Compute));
        let reached = roof.reached(2020.0).unwrap();
        assert_eq!((reached.utilisation, reached.peak_suspect), (0.5, false));
        assert!((reached.flops_per_s - 50e9).abs() < 1.0 && (reached.optimum_share - 1400.0 / 2020.0).abs() < 1e-12);
        assert!((reached.utilisation - reached.flops_per_s / CEILING.fp32_per_s).abs() < 1e-12);
    }

    #[test]
    fn memory_binds_and_its_utilisation_is_of_bytes() {
        let roof = Roofline::of([cost(1_000, 20_000), cost(0, 5_000)], &CEILING);
        assert_eq!((roof.bound, roof.memory_ns, roof.optimum_ns), (Bound::Memory, 2500.0, 2500.0));
        let reached = roof.reached(2000.0).unwrap();
        assert_eq!((reached.utilisation, reached.peak_suspect), (1.25, true)); // never clamped
        assert!((reached.bytes_per_s - 12.5e9).abs() < 1.0);
        assert!(!roof.reached(2500.0 / 1.04).unwrap().peak_suspect);
    }

    #[test]
    fn many_small_nodes_are_bound_by_launch() {
        let roof = Roofline::of([cost(100, 10); 8], &CEILING);
        assert_eq!((roof.compute_ns, roof.memory_ns, roof.launch_ns), (8.0, 8.0, 400.0));
        assert_eq!((roof.bound, roof.optimum_ns), (Bound::Launch, 8.0));
        assert_eq!(roof.reached(800.0).unwrap().utilisation, 0.5);
    }

    #[test]
    fn precisions_have_their_own_peaks() {
        let node = |precision| (precision, Cost { flops: 400_000, other_ops: 0, bytes: 10 });
        for (precision, ns) in [(Precision::Fp32, 4000.0), (Precision::Tf32, 2000.0), (Precision::Fp16, 500.0)] {
            let roof = Roofline::of([node(precision), node(Precision::Int8)], &CEILING);
            assert_eq!((roof.compute_ns, roof.optimum_ns), (ns + 1000.0, ns + 1000.0));
        }
    }

    #[test]
    fn nothing_takes_no_time() {
        let roof = Roofline::of([], &CEILING);
        assert_eq!((roof.optimum_ns, roof.bound), (0.0, Bound::Compute));
        let dead =
            Ceiling { fp32_per_s: 0.0, tf32_per_s: 0.0, fp16_per_s: 0.0, int8_per_s: 0.0, bytes_per_s: 0.0, launch_ns: 0.0 };
        assert_eq!(Roofline::of([cost(0, 0)], &dead).optimum_ns, 0.0);
        assert!([0.0, -1.0, f64::NAN, f64::INFINITY].into_iter().all(|ns| roof.reached(ns).is_none()));
    }

    #[test]
    fn batches_gain_and_padding_wastes() {
        assert_eq!(Efficiency::of(32, 100.0, 400.0), Some(Efficiency { speed_up: 8.0, efficiency: 0.25 }));
        assert_eq!(Efficiency::of(1, 100.0, 100.0), Some(Efficiency { speed_up: 1.0, efficiency: 1.0 }));
        assert_eq!([Efficiency::of(0, 1.0, 1.0), Efficiency::of(2, 0.0, 1.0), Efficiency::of(2, 1.0, f64::NAN)], [None; 3]);
        assert_eq!([padding_waste(75, 100), padding_waste(7, 7)], [Some(0.25), Some(0.0)]);
        assert_eq!([padding_waste(0, 5), padding_waste(0, 0), padding_waste(6, 5)], [None; 3]);
        assert_eq!(padding_waste(u64::MAX - 1, u64::MAX), Some(1.0 / u64::MAX as f64));
        assert!(padding_waste(1, u64::MAX).is_some_and(|waste| waste <= 1.0));
    }

    #[test]
    fn names_are_those_of_the_documents() {
        assert_eq!([Bound::Compute, Bound::Memory, Bound::Launch].map(Bound::name), ["compute", "memory", "launch"]);
        assert_eq!(Precision::ALL.map(Precision::name), ["fp32", "tf32", "fp16", "int8"]);
    }
}
