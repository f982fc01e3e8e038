//! Shadow-serving: copies of sampled requests go to other targets, and the answers and latencies of both sides are compared.
//!
//! - `sampler` decides by a request's head whether it is copied, `quota` by its cost class once it is answered;
//! - `repeatable`: which routes are calls of a model, as their bodies show, so that they may be repeated; `kept`: what of a request is;
//! - `pairs` puts the accounts of both sides together;
//! - `order`: which side of a pair goes first;
//! - `ab`: the statistics of latency, paired and unpaired, valid however often one looks;
//! - `recording` is the file of recorded requests and that of the pairs of a replay; `gates`: bounds that a replay must keep;
//! - `mapping`: requests of another API as calls of a model that the engine runs;
//! - `compare`: decoded outputs against each other, net of the noise of the primary itself; `outputs` adds them up by target and route.
//!
//! The copying itself is in `proxy/layer/shadow` (the tap) and in `app/shadow` (the thread that sends copies).

#![forbid(unsafe_code)]

mod config;
mod counters;
pub mod gates;
mod kept;
pub mod mapping;
mod order;
mod outputs;
mod pairs;
mod quota;
pub mod recording;
mod repeatable;
mod sampler;

use http::HeaderName;

pub use config::{Config, CopyOrder, CopyRule, OnlyThese};
pub use counters::{ShadowCounters, ShadowDrop, TargetCounters};
pub use kept::{KeptHeaders, Secrets, Unsearchable};
pub use order::PairOrder;
pub use outputs::{OutputAccounts, OutputVerdict};
pub use pairs::{
    CardSnapshot, DifferingPair, OutputResult, PairFigure, PairHalf, PairTable, RATIO_BOUNDS, RatioHistogram, SideAccount,
    SideWaterfall, TargetSnapshot,
};
pub use quota::{QuotaIndex, QuotaOfRoute, QuotaResult, QuotaTable, RouteQuota};
pub use repeatable::{AnsweredExchange, JudgedRequest, Repeatable, RouteStanding, Standing};
pub use sampler::{Sampled, Sampler};

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

/// The header that every copy carries, with the value 1. A request that has it is not copied again.
pub const SHADOW_FIELD: HeaderName = HeaderName::from_static("x-lapwing-shadow");
/// The name of the upstream as a target, when it is asked a second time.
pub const UPSTREAM_AGAIN: &str = "upstream";

#[cfg(test)]
mod tests;
