//! Shadow-serving: copies of sampled requests go to other targets, and the answers and latencies of both sides are compared.
//!
//! - `sampler` decides by a request's head whether it is copied, `quota` by its cost class once it is answered; `named_routes`: the
//!   routes that the user names for either;
//! - `repeatable`: which routes are calls of a model, as their bodies show, so that they may be repeated;
//! - `kept`: what of a request goes into a copy, with the names in `header_names`;
//! - [`mapping`]: requests of another API as calls of a model that the engine runs;
//! - `pairs` puts the accounts of both sides together; `outputs` adds up by target and route how their outputs compare;
//! - [`recording`] is the file of recorded requests and that of the pairs of a replay; [`gates`]: bounds that a replay must keep.
//!
//! It decides, keeps and counts. It never sends a copy: the tap is a layer of the proxy, and the command's thread `lapwing-shadow` sends.
//! It never delays a request, and never copies what it cannot show to be safe to repeat.
//!
//! ```
//! use http::{HeaderMap, header::AUTHORIZATION, header::CONTENT_TYPE};
//! use lapwing_shadow::{Config, KeptHeaders};
//!
//! let headers = HeaderMap::from_iter([
//!     (AUTHORIZATION, "Bearer secret".parse().unwrap()),
//!     (CONTENT_TYPE, "application/json".parse().unwrap()),
//! ]);
//! let kept = KeptHeaders::new(&Config::default(), &lapwing_protocol::Config::default()).of(&headers);
//! assert_eq!(kept.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["content-type"]);
//! ```

#![forbid(unsafe_code)]

mod config;
mod counters;
pub mod gates;
mod header_names;
mod kept;
pub mod mapping;
mod named_routes;
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
pub use outputs::{OutputAccounts, OutputVerdict};
pub use pairs::{
    CardSnapshot, DifferingPair, OutputResult, PairFigure, PairHalf, PairOrder, PairTable, RATIO_BOUNDS, RatioHistogram,
    SideAccount, SideWaterfall, TargetSnapshot,
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
