//! Servers and requests in virtual time.

mod bounds;
mod counting;
mod ejecting;
mod hedging;
mod learning;
mod placing;
mod queueing;

use lapwing_ledger::{LabelId, Stamp};

use crate::ask::HedgeSettings;
use crate::ask::{QueueClass, QueueOrder, QueueSettings};
use crate::learn::{Departure, DepartureEnd};
use crate::service::WorkSeries;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SERIES: WorkSeries = WorkSeries { route: LabelId::OTHER, model: LabelId::OTHER };

pub(crate) fn at_ms(ms: f64) -> Stamp {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Stamp::default().plus(1 + (ms * 1e6) as u64)
}

pub(crate) fn class(name: &str, weight: u32, is_background: bool) -> QueueClass {
    QueueClass { name: name.into(), weight, is_background }
}

pub(crate) fn settings() -> QueueSettings {
    QueueSettings {
        order: QueueOrder::Due,
        patience: 2.0,
        classes: vec![class("other", 1, false)],
        max_waiting: 1_024,
        max_wait_ns: 10_000 * MS,
        rejects: true,
        hedge: HedgeSettings::default(),
    }
}

/// Numbers that look random (xorshift64*, Vigna 2016).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// In `0..1`.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// By Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Work of 1..=256 units: lognormal(2.2, 1.3).
    pub(crate) fn units(&mut self) -> f64 {
        (2.2 + 1.3 * self.normal()).exp().clamp(1.0, 256.0).round()
    }
}

/// The mean of 2 ms + 1 ms for each unit, by sampling.
pub(crate) fn mean_service_ms() -> f64 {
    let mut random = Random(7);
    (0..100_000).map(|_| 2.0 + random.units()).sum::<f64>() / 100_000.0
}

/// Poisson arrivals at a load of one slot, with their work and service times: 2 ms + 1 ms for each unit, times lognormal noise.
pub(crate) fn arrivals(seed: u64, count: usize, load: f64, noise: f64) -> Vec<(f64, u64, f64)> {
    let mut random = Random(seed);
    let gap = mean_service_ms() / load;
    let mut now = 0.0;
    let mut one = || {
        now += random.exponential(gap);
        let units = random.units();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (now, units as u64, (2.0 + units) * (noise * random.normal()).exp())
    };
    (0..count).map(|_| one()).collect()
}

/// The same as a server with some slots answers them that takes them as they come, the first upstream.
pub(crate) fn answered(arrivals: &[(f64, u64, f64)], slots: usize, budget_ms: Option<f64>) -> Vec<(Departure, f64)> {
    let mut free = vec![0.0_f64; slots];
    let answer = |(arrived, units, takes): &(f64, u64, f64)| {
        let (place, _) = free.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        let began = free[place].max(*arrived);
        free[place] = began + takes;
        let departure = Departure {
            series: SERIES,
            upstream: 0,
            units: *units,
            arrived: at_ms(*arrived),
            sent: at_ms(*arrived),
            ended: at_ms(began + takes),
            deadline: budget_ms.map(|budget| at_ms(arrived + budget)),
            end: DepartureEnd::Given,
        };
        (departure, takes * 1e6)
    };
    arrivals.iter().map(answer).collect()
}
