//! What the report of shadow-serving is made of: what became of copies, both sides of the pairs, and what their outputs differ in. The
//! admin address shows it, and so does a replay.

use std::sync::Arc;

use parking_lot::Mutex;

use super::counters::ShadowCounters;
use super::outputs::OutputAccounts;
use super::pairs::{PairOrder, PairTable};
use super::quota::QuotaTable;
use super::repeatable::RouteStanding;
use lapwing_metrics::{Labels, Registry};

/// What the report of shadow-serving is made of.
#[derive(Clone)]
pub struct ShadowSurface {
    /// The series of copies. Locked for microseconds at a time.
    pub registry: Arc<Mutex<Registry>>,
    /// Both sides together.
    pub pairs: Arc<Mutex<PairTable>>,
    /// What outputs differ in.
    pub outputs: Arc<Mutex<OutputAccounts>>,
    /// What became of copies.
    pub counters: Arc<ShadowCounters>,
    /// What quotas took.
    pub quotas: Arc<QuotaTable>,
    /// What was learnt of routes, whether they may be repeated.
    pub routes: Arc<dyn Fn() -> Vec<RouteStanding> + Send + Sync>,
    /// How many bytes copies of bodies keep alive now, and at most.
    pub budget: Arc<dyn Fn() -> (usize, usize) + Send + Sync>,
    /// The targets, in the order of their indices.
    pub targets: Arc<[TargetInfo]>,
    /// Which side of a pair goes first.
    pub order: PairOrder,
    /// The names of routes and models.
    pub labels: Arc<Labels>,
}

/// A target, as surfaces name it.
#[derive(Clone, Debug)]
pub struct TargetInfo {
    /// Its name.
    pub name: String,
    /// Its address, as it was configured.
    pub address: String,
    /// The upstream's label in the series of copies.
    pub label: String,
    /// Whether it is the upstream itself, asked a second time.
    pub is_upstream: bool,
}
