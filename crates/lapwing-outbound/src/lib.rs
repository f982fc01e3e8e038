//! A model server's own calls to its feature store: passed through unchanged, read on the way, joined to the requests that made them.
//!
//! [`serve`] takes connections and opens one to the store for each. Bytes are handed on first; then a clone of them is read, by a state
//! machine that keeps names of commands and times, and no keys and no values. [`WaitJoiner`] gives the times in which the server waited
//! to the ledgers of requests, on the thread that merges those. [`Downstreams`] has the figures.
//!
//! Nothing here is on the way of a request through the data plane.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lapwing_metrics::Counters;
//! use lapwing_outbound::{Downstream, Downstreams, WaitJoiner};
//!
//! let text = r#"[{"name": "features", "listen": "127.0.0.1:6380", "to": "redis://127.0.0.1:6379", "kind": "redis"}]"#;
//! let config: Vec<Downstream> = serde_json::from_str(text).unwrap();
//! let all = Downstreams::of(&config, &Arc::new(Counters::default())).unwrap();
//! assert_eq!(all.views()[0].name(), "features");
//! assert_eq!(WaitJoiner::new(all).fill(), 0);
//! ```

#![forbid(unsafe_code)]

mod cache;
mod cache_config;
mod cached_splice;
mod call;
mod config;
mod families;
mod figures;
mod http1;
mod http2;
mod join;
mod kind;
mod name;
mod reader;
mod resp;
mod serve;
mod splice;
mod state;
mod unread;
mod view;

#[cfg(test)]
mod tests;

pub use cache_config::{DownstreamCache, DownstreamCacheMode, KeptAbsence};
pub use config::{CallStage, DOWNSTREAM, Downstream, LISTEN_KEYS, MAX_DOWNSTREAMS, check_downstreams};
pub use families::{DownstreamFamilies, encode};
pub use figures::WaitJoin;
pub use join::WaitJoiner;
pub use kind::DownstreamKind;
pub use name::CallName;
pub use serve::{OutboundListener, serve};
pub use state::{DownstreamState, Downstreams};
pub use unread::Unread;
pub use view::DownstreamView;
