//! Shadow-serving: copies of sampled requests go to other targets, and the answers and latencies of both sides are compared.
//!
//! - `tap` sees clients' requests in the proxy's stack and captures those that are copied: `sampler` decides by a request's head, `quota`
//!   by its cost class once it is answered;
//! - `repeatable`: which routes are calls of a model, as their bodies show, so that they may be repeated;
//! - `kept`: what of a request goes into a copy, with the names in `header_names`;
//! - `copying`: the thread that sends copies, and the one that compares outputs; [`mapping`]: requests of another API as calls of a model
//!   that the engine runs;
//! - `pairs` puts the accounts of both sides together; `outputs` adds up by target and route how their outputs compare; `surface` is what
//!   the report is made of;
//! - [`recording`] records requests into a file, [`replay`] sends those of a file, and writes the pairs into another; [`gates`]: bounds
//!   that a replay must keep; [`warm`] sends those of a file to a running Lapwing, whose cache then has their answers;
//! - [`split`]: clients' own requests divided between upstreams, what they show, and when the share rises or falls to nothing;
//!   [`switchback`]: a lever that is on and off in turn, and what that shows.
//!
//! It never delays a request, never copies what it cannot show to be safe to repeat, and knows neither the engine nor the whole
//! configuration: the command loads models, and makes the [`ShadowSettings`].
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
mod copying;
mod counters;
pub mod gates;
mod header_names;
mod kept;
pub mod mapping;
mod named_routes;
mod outputs;
mod pairs;
pub mod pictures;
mod quota;
pub mod recording;
mod repeatable;
pub mod replay;
mod sampler;
#[cfg(test)]
mod seeded_random;
mod settings;
pub mod split;
mod surface;
pub mod switchback;
mod tap;
pub mod warm;

pub use config::{Config, CopyOrder, CopyRule, OnlyThese, UPSTREAM_AGAIN};
pub use copying::{ComparedOutputs, NamedTarget, ShadowParts, ShadowThreads, TargetStacks, start_shadow};
pub use counters::{ShadowCounters, ShadowDrop, TargetCounters};
pub use header_names::SHADOW_FIELD;
pub use kept::{KeptHeaders, Secrets, Unsearchable};
pub use outputs::{OutputAccounts, OutputVerdict};
pub use pairs::{
    CardSnapshot, DifferingPair, OutputResult, PairFigure, PairHalf, PairOrder, PairTable, RATIO_BOUNDS, RatioHistogram,
    SideAccount, SideWaterfall, TargetSnapshot,
};
pub use quota::{QuotaIndex, QuotaOfRoute, QuotaResult, QuotaTable, RouteQuota};
pub use repeatable::{AnsweredExchange, JudgedRequest, Repeatable, RouteStanding, Standing};
pub use sampler::{Sampled, Sampler};
pub use settings::ShadowSettings;
pub use surface::{ShadowSurface, TargetInfo};
pub use tap::{CopyRecognition, PairNumbers, RecordingSwitch, RunningRecording, ShadowJob, ShadowTap, TapBranch, TapParts};

#[cfg(test)]
mod tests;
