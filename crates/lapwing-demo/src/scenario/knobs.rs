//! What a scenario turns: of the server, of the link before it, of the load, and what counts as the right diagnosis.
//!
//! Times are milliseconds, shares are per mille.

use lapwing_diagnosis::{Cause, LatencyBound};
use lapwing_ledger::Stage;

/// A trouble that is played on the demo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scenario {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// What happens, in a sentence without a full stop.
    pub(crate) what: &'static str,
    /// The diagnosis that counts as right; `None` if nothing is wrong.
    pub(crate) expected: Option<ExpectedDiagnosis>,
    /// Where the trouble shows; `None` if nothing is wrong.
    pub(crate) shows: Option<Sign>,
    /// The budget of its routes: the quantile, and the limit in milliseconds.
    pub(crate) budget: (&'static str, u64),
    /// Settings of Lapwing beyond the budget: the setting and its text.
    pub(crate) settings: &'static [(&'static str, &'static str)],
    pub(crate) server: ServerKnobs,
    pub(crate) link: LinkKnobs,
    pub(crate) load: LoadKnobs,
}

/// What a user changes of a scenario; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// How many requests the model works on at once; zero is any number.
    pub(crate) instances: Option<usize>,
    /// What the model takes for a request of no rows, in milliseconds.
    pub(crate) model_ms: Option<u64>,
    /// The budget, in milliseconds.
    pub(crate) budget_ms: Option<u64>,
}

impl Scenario {
    /// The same with what a user changes.
    pub(crate) fn with(mut self, changes: Changes) -> Self {
        let Changes { instances, model_ms, budget_ms } = changes;
        self.server.instances = instances.map_or(self.server.instances, |instances| [instances; 2]);
        self.server.forward_ms = model_ms.unwrap_or(self.server.forward_ms);
        self.budget.1 = budget_ms.unwrap_or(self.budget.1);
        self
    }
}

/// A diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedDiagnosis {
    /// `None` if any bound is: a trouble may hit whatever runs.
    pub(crate) bound: Option<LatencyBound>,
    pub(crate) cause: Cause,
}

/// The figure of `/stats` in which a trouble shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) stage: Stage,
    /// `p50` or `p99`.
    pub(crate) quantile: &'static str,
    /// The least that the stage's quantile is, in milliseconds.
    pub(crate) least_ms: u64,
}

/// How much is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LoadLevel {
    /// So little that requests seldom meet, unless the trouble makes them.
    #[default]
    Low,
    /// More than twice as much.
    High,
}

impl LoadLevel {
    /// The place of its figure in a pair.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Low => 0,
            Self::High => 1,
        }
    }
}

/// A delay that some requests have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RandomDelay {
    /// How many of a thousand.
    pub(crate) permille: u32,
    /// The shortest and the longest delay, between which it is drawn evenly.
    pub(crate) ms: (u64, u64),
}

impl RandomDelay {
    pub(crate) const NEVER: Self = Self { permille: 0, ms: (0, 0) };
}

/// What the server does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServerKnobs {
    /// How long the feature table takes for a row that the cache lacks.
    pub(crate) miss_ms: u64,
    /// How many of a thousand rows have expired in the cache when they are looked up.
    pub(crate) expired_permille: u32,
    /// How often the cache is emptied; zero is never.
    pub(crate) flush_every_ms: u64,
    /// A further delay of the feature table, once a request that misses the cache.
    pub(crate) slow_store: RandomDelay,
    /// What the model takes for a request of no rows.
    pub(crate) forward_ms: u64,
    /// What it takes for each row, in microseconds.
    pub(crate) row_us: u64,
    /// How many requests it works on at once, by load; zero is any number.
    pub(crate) instances: [usize; 2],
    /// After how long without a request its weights are gone, and how long they take to load.
    pub(crate) load_after_idle_ms: Option<(u64, u64)>,
    /// How often the whole server stops, and for how long.
    pub(crate) pause_every_ms: Option<(u64, u64)>,
    /// A delay of the work on the outputs.
    pub(crate) postprocessing: RandomDelay,
}

/// What lies between Lapwing and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkKnobs {
    /// Half a round trip: how long each byte is on its way.
    pub(crate) half_trip_ms: u64,
    /// Whether an answer's head and its body are written apart, with Nagle's algorithm on.
    pub(crate) splits_writes: bool,
}

/// What the clients send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadKnobs {
    /// Requests per second, by load.
    pub(crate) rate: [f64; 2],
    /// Rows of a request, and their weights.
    pub(crate) rows: &'static [(usize, u32)],
    /// Requests that come at once, beside the others: how often, and how many.
    pub(crate) burst_every_ms: Option<(u64, usize)>,
    /// Stretches of unequal load.
    pub(crate) stretches: Option<Stretches>,
    /// Requests whose body the client takes a long time to write.
    pub(crate) slow_upload: RandomDelay,
    /// Requests with bytes that nobody needs.
    pub(crate) padding: Option<Padding>,
}

/// Load that goes up and down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretches {
    /// One stretch of each kind together.
    pub(crate) period_ms: u64,
    /// The busy stretch, which comes first.
    pub(crate) busy_ms: u64,
    /// The rate in the busy stretch and in the other one, as a multiple of the load's.
    pub(crate) factors: (f64, f64),
}

/// Bytes that nobody needs, and the link that they are sent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    /// How many of a thousand requests have them.
    pub(crate) permille: u32,
    /// How many bytes.
    pub(crate) bytes: usize,
    /// What the client's link carries, in bytes per second.
    pub(crate) link_bytes_per_second: u64,
}
