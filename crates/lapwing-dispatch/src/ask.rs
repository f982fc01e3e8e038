//! What is settled for the queue, who asks, and what it answers.

use lapwing_ledger::Stamp;

use crate::service::WorkSeries;
use crate::upstreams::{RunId, UpstreamSet};

/// In which order requests of a class go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueOrder {
    /// By arrival and predicted time.
    #[default]
    Due,
    /// By arrival.
    Fifo,
}

/// What is settled for a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueClass {
    /// By which it is the same class after other settings are put in force.
    pub name: Box<str>,
    /// Its share of the time while others wait too, in proportion to theirs.
    pub weight: u32,
    /// Whether it goes only where no other class has anything to send.
    pub is_background: bool,
}

/// What is settled for the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// The order within a class.
    pub order: QueueOrder,
    /// How many times its own time a request lets others pass.
    pub patience: f64,
    /// The classes, at least one.
    pub classes: Vec<QueueClass>,
    /// How many may wait.
    pub max_waiting: usize,
    /// How long one may wait, in nanoseconds.
    pub max_wait_ns: u64,
    /// Whether those are refused who would miss their deadline.
    pub rejects: bool,
    /// Which of those that run are sent a second time.
    pub hedge: HedgeSettings,
}

/// What is settled for second requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeSettings {
    /// A running request is sent again when it has taken longer than this share of those like it, in `0..1`.
    pub quantile: f64,
    /// How much time second requests may take, as a share of that of all.
    pub budget: f64,
    /// How many may come at once, of mean time.
    pub burst: u32,
    /// Above this share of busy slots there is none.
    pub max_utilisation: f64,
    /// Requests that take longer than this, in nanoseconds, go to two upstreams at once while these are mostly idle.
    pub dual_above_ns: Option<u64>,
    /// An upstream, by its place, that is sent nothing else. How many requests it works on at once need not be known: it is sent one.
    pub spare: Option<usize>,
}

impl Default for HedgeSettings {
    fn default() -> Self {
        Self { quantile: 0.98, budget: 0.02, burst: 10, max_utilisation: 0.9, dual_above_ns: None, spare: None }
    }
}

/// A request that asks to be sent.
#[derive(Clone, Copy, Debug)]
pub struct QueueRequest {
    /// Its class, by its place.
    pub class: usize,
    /// Where it may go.
    pub upstreams: UpstreamSet,
    /// What it is.
    pub series: WorkSeries,
    /// How much it asks for.
    pub units: u64,
    /// When it came.
    pub arrived: Stamp,
    /// When its client wants the answer at the latest.
    pub deadline: Option<Stamp>,
}

/// One who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

/// What becomes of a request that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// It goes to the upstream at this place.
    Go(usize, RunId),
    /// It waits.
    Wait(Ticket),
    /// It would miss its deadline.
    Late {
        /// What it would wait, in nanoseconds.
        wait_ns: u64,
        /// When what waits now will have gone, in nanoseconds from now.
        drain_ns: u64,
    },
    /// Nothing is known of its series or of what its upstreams work on at once: it goes as it would without a queue.
    Unknown,
    /// Too many wait.
    Full,
}

/// Why one who waited no longer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// It can no longer meet its deadline.
    Deadline,
    /// It has waited for longer than one may: it goes as it would without a queue.
    Wait,
}

/// How one who waits stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketState {
    /// It waits.
    Waiting,
    /// It goes to the upstream at this place.
    Go(usize, RunId),
    /// It waits no longer.
    Overdue(Overdue),
}
