//! A simulated executor and simulated callers: virtual time, seeded arrivals, a forward of a fixed part and a part per token.
//!
//! It drives [`Waiting`] alone.

use std::collections::BTreeSet;

use super::super::{CallCost, Config, Item, Next, Policy, Tuning, Waiting};
use crate::clock::Stamp;

/// Numbers that look random, the same for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// Exponential with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

/// What lengths calls have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lengths {
    /// 16 tokens nine times in ten, else 512.
    Bimodal,
    /// 1 to 512, each as likely.
    Uniform,
    /// One row, no tokens.
    Row,
}

impl Lengths {
    /// The length of one call, in units.
    pub(super) fn draw(self, random: &mut Random) -> usize {
        match self {
            Self::Bimodal => [512, 16][usize::from(!random.next().is_multiple_of(10))],
            Self::Uniform => 1 + (random.next() % 512) as usize,
            Self::Row => 1,
        }
    }

    /// Its mean.
    pub(super) fn mean(self) -> f64 {
        match self {
            Self::Bimodal => 0.9 * 16.0 + 0.1 * 512.0,
            Self::Uniform => 256.5,
            Self::Row => 1.0,
        }
    }
}

/// When calls come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gaps {
    /// One by one, independent of each other.
    Poisson,
    /// Bursts of so many, independent of each other; within one, a call each so many nanoseconds.
    Bursts(usize, u64),
    /// So many clients, each of which calls again some time (exponential, with this mean in nanoseconds) after its answer.
    Clients(usize, f64),
}

/// The model that is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    /// A forward's fixed part, in nanoseconds.
    pub(super) fixed_ns: f64,
    /// A forward's part for each unit, in nanoseconds.
    pub(super) unit_ns: f64,
    /// Whether each call of a batch is padded to the longest.
    pub(super) padded: bool,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) server: Server,
    pub(super) lengths: Lengths,
    pub(super) gaps: Gaps,
    /// Useful work offered, as a part of what the server does without padding and without a fixed part.
    pub(super) load: f64,
    pub(super) calls: usize,
    /// Each call's deadline after its arrival, in multiples of its own forward.
    pub(super) patience: Option<f64>,
    pub(super) seed: u64,
}

/// What became of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) units: usize,
    pub(super) arrived: Stamp,
    pub(super) deadline: Option<Stamp>,
    /// When its batch started and ended; `None` where it expired or was refused.
    pub(super) ran: Option<(Stamp, Stamp)>,
    /// Which batch, by number.
    pub(super) batch: usize,
    /// How often it was given out, run or expired.
    pub(super) given: u32,
}

/// One batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) calls: usize,
    pub(super) useful: usize,
    pub(super) executed: usize,
    /// When it could have started: the executor was free and its oldest call there.
    pub(super) could: Stamp,
    pub(super) start: Stamp,
}

/// What a run gave.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) calls: Vec<Call>,
    pub(super) batches: Vec<Ran>,
    pub(super) refused: usize,
    pub(super) end: Stamp,
}

impl Scenario {
    fn call(&self, at: f64, random: &mut Random) -> Call {
        let units = self.lengths.draw(random);
        let arrived = Stamp::default().plus(at as u64);
        let alone = self.server.fixed_ns + self.server.unit_ns * units as f64;
        let deadline = self.patience.map(|times| arrived.plus((alone * times) as u64));
        Call { units, arrived, deadline, ran: None, batch: usize::MAX, given: 0 }
    }

    /// All calls, or the clients' first ones.
    fn arrivals(&self, random: &mut Random) -> Vec<Call> {
        let gap = self.lengths.mean() * self.server.unit_ns / self.load;
        let (mut at, mut calls) = (1.0, Vec::new());
        for i in 0..self.calls {
            match self.gaps {
                Gaps::Poisson => at += random.exponential(gap),
                Gaps::Bursts(of, _) if i % of == 0 => at += random.exponential(gap * of as f64),
                Gaps::Bursts(_, apart_ns) => at += apart_ns as f64,
                Gaps::Clients(clients, _) if i == clients => break,
                Gaps::Clients(_, think_ns) => at = 1.0 + random.exponential(think_ns),
            }
            calls.push(self.call(at, random));
        }
        calls
    }

    /// Runs it to the end.
    pub(super) fn run(&self, config: Config, tuning: Tuning) -> Outcome {
        let mut random = Random(self.seed);
        let mut waiting = Waiting::new(config, tuning);
        let mut out = Outcome { calls: self.arrivals(&mut random), batches: Vec::new(), refused: 0, end: Stamp::default() };
        let mut coming: BTreeSet<(Stamp, usize)> = out.calls.iter().enumerate().map(|(i, call)| (call.arrived, i)).collect();
        let (mut into, mut expired) = (Vec::new(), Vec::new());
        let (mut now, mut free) = (Stamp::default(), Stamp::default());
        loop {
            // all that has come until now is in the queue before the executor, free now, asks
            while let Some((_, payload)) = coming.first().copied().filter(|(at, _)| *at <= now) {
                coming.pop_first();
                let Call { units, arrived, deadline, .. } = out.calls[payload];
                let item = Item { payload, cost: self.cost(1, units), arrived, deadline };
                out.refused += usize::from(waiting.push(item).is_err());
            }
            let next = waiting.poll(now, coming.is_empty(), &mut into, &mut expired);
            for item in into.iter().chain(&expired) {
                out.calls[item.payload].given += 1;
            }
            match (next, coming.first()) {
                (Next::Run, _) => {
                    let start = now;
                    now = now.plus(self.forward(&into, start, free, &mut waiting, &mut out, &mut random));
                    free = now;
                    if let Gaps::Clients(_, think_ns) = self.gaps {
                        let again = into.len().min(self.calls - out.calls.len());
                        for _ in 0..again {
                            let at = now.as_ns() as f64 + random.exponential(think_ns);
                            let call = self.call(at, &mut random);
                            coming.insert((call.arrived, out.calls.len()));
                            out.calls.push(call);
                        }
                    }
                }
                (Next::Wait(until), coming) => now = coming.map_or(until, |&(at, _)| at.min(until)),
                (Next::Idle, Some(&(at, _))) => now = at,
                (Next::Idle, None) => break,
            }
        }
        out.end = now;
        out
    }

    fn cost(&self, rows: usize, units: usize) -> CallCost {
        CallCost { rows, tokens: if self.lengths == Lengths::Row { 0 } else { units } }
    }

    /// The model runs: how long it took.
    fn forward(
        &self,
        batch: &[Item<usize>],
        start: Stamp,
        free: Stamp,
        waiting: &mut Waiting<usize>,
        out: &mut Outcome,
        random: &mut Random,
    ) -> u64 {
        let useful: usize = batch.iter().map(|item| item.cost.units()).sum();
        let longest = batch.iter().map(|item| item.cost.units()).max().unwrap_or_default();
        let executed = if self.server.padded { longest * batch.len() } else { useful };
        let noise = 0.95 + 0.1 * random.unit();
        let took = ((self.server.fixed_ns + self.server.unit_ns * executed as f64) * noise) as u64;
        waiting.observe(self.cost(batch.len(), useful), took);
        for item in batch {
            let call = &mut out.calls[item.payload];
            (call.ran, call.batch) = (Some((start, start.plus(took))), out.batches.len());
        }
        let oldest = batch.iter().map(|item| item.arrived).min().unwrap_or_default();
        out.batches.push(Ran { calls: batch.len(), useful, executed, could: free.max(oldest), start });
        took
    }
}

impl Outcome {
    /// The latency at this rank (0.5 is the median) of the calls with these lengths, in milliseconds; zero where none ran.
    pub(super) fn latency_ms(&self, rank: f64, which: impl Fn(usize) -> bool) -> f64 {
        let done = self.calls.iter().filter(|call| which(call.units));
        let mut all: Vec<u64> = done.filter_map(|call| call.ran.map(|(_, end)| end.since(call.arrived))).collect();
        all.sort_unstable();
        let at = ((all.len() as f64 * rank).ceil() as usize).clamp(1, all.len().max(1)) - 1;
        all.get(at).map_or(0.0, |&ns| ns as f64 / 1e6)
    }

    /// The mean latency, in milliseconds.
    pub(super) fn mean_ms(&self) -> f64 {
        let all: Vec<u64> = self.calls.iter().filter_map(|c| c.ran.map(|(_, end)| end.since(c.arrived))).collect();
        all.iter().sum::<u64>() as f64 / all.len().max(1) as f64 / 1e6
    }

    /// Rows that ran, per second from the first arrival to the last answer.
    pub(super) fn rows_per_s(&self) -> f64 {
        let ran = self.calls.iter().filter(|call| call.ran.is_some()).count();
        let from = self.calls.first().map_or(self.end, |call| call.arrived);
        ran as f64 / (self.end.since(from).max(1) as f64 / 1e9)
    }

    /// What part of the executed tokens was padding.
    pub(super) fn waste(&self) -> f64 {
        let executed: usize = self.batches.iter().map(|batch| batch.executed).sum();
        let useful: usize = self.batches.iter().map(|batch| batch.useful).sum();
        1.0 - useful as f64 / executed.max(1) as f64
    }

    /// Calls of a batch, on average.
    pub(super) fn batch_calls(&self) -> f64 {
        self.batches.iter().map(|batch| batch.calls).sum::<usize>() as f64 / self.batches.len().max(1) as f64
    }
}

/// Fixed batching as servers do it today: eight calls, or what came within 5 ms.
pub(super) fn fixed(queue_calls: usize) -> Config {
    Config { policy: Policy::Fixed { calls: 8 }, queue_calls, ..Config::default() }
}
