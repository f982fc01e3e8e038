//! A simulated executor and simulated callers: virtual time, seeded arrivals, and forwards with a fixed cost and a cost per
//! token.
//!
//! It drives [`Waiting`] directly, without threads.

use std::collections::BTreeSet;

use super::super::{CallCost, Config, Item, Next, Policy, Tuning, Waiting};
use lapwing_engine::clock::Stamp;

/// A pseudo-random generator (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// Exponential with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

/// The distribution of the calls' lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lengths {
    /// 16 tokens with probability 0.9, else 512.
    Bimodal,
    /// Uniform from 1 to 512.
    Uniform,
    /// One row, no tokens.
    Row,
}

impl Lengths {
    /// Draws the length of one call, in units.
    pub(crate) fn draw(self, random: &mut Random) -> usize {
        match self {
            Self::Bimodal => [512, 16][usize::from(!random.next().is_multiple_of(10))],
            Self::Uniform => 1 + (random.next() % 512) as usize,
            Self::Row => 1,
        }
    }

    /// The mean length.
    pub(crate) fn mean(self) -> f64 {
        match self {
            Self::Bimodal => 0.9 * 16.0 + 0.1 * 512.0,
            Self::Uniform => 256.5,
            Self::Row => 1.0,
        }
    }
}

/// The arrivals of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gaps {
    /// Single calls, independent of each other.
    Poisson,
    /// Independent bursts: the number of calls in each, and the nanoseconds between two of them.
    Bursts(usize, u64),
    /// A number of clients, each of which calls again some time after its answer (exponential, with this mean in nanoseconds).
    Clients(usize, f64),
}

/// The model that is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// The fixed cost of a forward, in nanoseconds.
    pub(crate) fixed_ns: f64,
    /// The cost of each unit of a forward, in nanoseconds.
    pub(crate) unit_ns: f64,
    /// Whether each call of a batch is padded to the longest.
    pub(crate) padded: bool,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) server: Server,
    pub(crate) lengths: Lengths,
    pub(crate) gaps: Gaps,
    /// Offered work, as a fraction of the server's capacity without padding and without a fixed cost.
    pub(crate) load: f64,
    pub(crate) calls: usize,
    /// The time from a call's arrival to its deadline, as a multiple of its own forward time.
    pub(crate) patience: Option<f64>,
    pub(crate) seed: u64,
}

/// The fate of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) units: usize,
    pub(crate) arrived: Stamp,
    pub(crate) deadline: Option<Stamp>,
    /// When its batch started and ended; `None` if it expired or was refused.
    pub(crate) ran: Option<(Stamp, Stamp)>,
    /// The index of its batch.
    pub(crate) batch: usize,
    /// How often it was returned, to run or as expired.
    pub(crate) given: u32,
}

/// One batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) calls: usize,
    pub(crate) useful: usize,
    pub(crate) executed: usize,
    /// When it could have started: the executor was free and its oldest call had arrived.
    pub(crate) could: Stamp,
    pub(crate) start: Stamp,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) calls: Vec<Call>,
    pub(crate) batches: Vec<Ran>,
    pub(crate) refused: usize,
    pub(crate) end: Stamp,
}

impl Scenario {
    fn call(&self, at: f64, random: &mut Random) -> Call {
        let units = self.lengths.draw(random);
        let arrived = Stamp::default().plus(at as u64);
        let alone = self.server.fixed_ns + self.server.unit_ns * units as f64;
        let deadline = self.patience.map(|times| arrived.plus((alone * times) as u64));
        Call { units, arrived, deadline, ran: None, batch: usize::MAX, given: 0 }
    }

    /// All calls; with clients, the first call of each.
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

    /// Runs the scenario to its end.
    pub(crate) fn run(&self, config: Config, tuning: Tuning) -> Outcome {
        let mut random = Random(self.seed);
        let mut waiting = Waiting::new(config, tuning);
        let mut out = Outcome { calls: self.arrivals(&mut random), batches: Vec::new(), refused: 0, end: Stamp::default() };
        let mut coming: BTreeSet<(Stamp, usize)> = out.calls.iter().enumerate().map(|(i, call)| (call.arrived, i)).collect();
        let (mut into, mut expired) = (Vec::new(), Vec::new());
        let (mut now, mut free) = (Stamp::default(), Stamp::default());
        loop {
            // calls that arrived until now enter the queue before the free executor asks
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

    /// Runs a batch; returns how long it took.
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
    /// The latency at this rank (0.5 is the median) of the calls with these lengths, in milliseconds; zero if none ran.
    pub(crate) fn latency_ms(&self, rank: f64, which: impl Fn(usize) -> bool) -> f64 {
        let done = self.calls.iter().filter(|call| which(call.units));
        let mut all: Vec<u64> = done.filter_map(|call| call.ran.map(|(_, end)| end.since(call.arrived))).collect();
        all.sort_unstable();
        let at = ((all.len() as f64 * rank).ceil() as usize).clamp(1, all.len().max(1)) - 1;
        all.get(at).map_or(0.0, |&ns| ns as f64 / 1e6)
    }

    /// The mean latency, in milliseconds.
    pub(crate) fn mean_ms(&self) -> f64 {
        let all: Vec<u64> = self.calls.iter().filter_map(|c| c.ran.map(|(_, end)| end.since(c.arrived))).collect();
        all.iter().sum::<u64>() as f64 / all.len().max(1) as f64 / 1e6
    }

    /// Rows that ran, per second from the first arrival to the last answer.
    pub(crate) fn rows_per_s(&self) -> f64 {
        let ran = self.calls.iter().filter(|call| call.ran.is_some()).count();
        let from = self.calls.first().map_or(self.end, |call| call.arrived);
        ran as f64 / (self.end.since(from).max(1) as f64 / 1e9)
    }

    /// The share of executed tokens that were padding.
    pub(crate) fn waste(&self) -> f64 {
        let executed: usize = self.batches.iter().map(|batch| batch.executed).sum();
        let useful: usize = self.batches.iter().map(|batch| batch.useful).sum();
        1.0 - useful as f64 / executed.max(1) as f64
    }

    /// Calls of a batch, on average.
    pub(crate) fn batch_calls(&self) -> f64 {
        self.batches.iter().map(|batch| batch.calls).sum::<usize>() as f64 / self.batches.len().max(1) as f64
    }
}

/// Fixed batching as in common servers: eight calls, or those that came within 5 ms.
pub(crate) fn fixed(queue_calls: usize) -> Config {
    Config { policy: Policy::Fixed { calls: 8 }, queue_calls, ..Config::default() }
}
