//! Answers that need not be asked for twice.
//!
//! The same question to a model has the same answer, as long as the model draws nothing by chance and keeps nothing of its
//! callers. Here is what decides which requests are the same, which answers may be given again, and what that would bring. It
//! carries nothing, but for `shared`.
//!
//! - `key` makes the key of a request, of its bytes or of its tensors; `generation` numbers what has to be forgotten at once;
//! - `answerable` and `sampled` tell which requests may be answered by an earlier answer, `storable` which answers may be stored and for how long, with
//!   the `directives` of HTTP; `refusal` has the reasons;
//! - `answer` is a stored answer and how it is given again, with the `id` of who asks (`answer_id`); `store` keeps answers within so many bytes;
//! - `coalesce`: the same request several times at once is asked once;
//! - `ghost`: what a cache would bring, by its size and time to live; `verify`: whether what it answers is still true;
//! - `shared` is a second level in a Redis that processes share, whose answers are `sealed`;
//! - `config` is the section `cache`, `routes` what of it holds for a request;
//! - `plane` keeps all of it for a process, with `trust` in who gives the same answer to the same question; `cache` and `asking` are what a data plane calls, and `caching`
//!   gives it to one.
//!
//! ```
//! use bytes::Bytes;
//! use http::Request;
//! use lapwing_cache::{AnswerableCheck, CacheRefusal, KeyContext, KeyForm, KeyMaker, KeyRules};
//!
//! let check = AnswerableCheck::default();
//! let ask = |body: &str| (Request::post("/v2/models/m/infer").body(()).unwrap(), [Bytes::from(body.to_owned())]);
//! let (head, one) = ask(r#"{"id": "1", "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.5]}]}"#);
//! let (_, other) = ask(r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [5e-1]}], "id": "2"}"#);
//! assert!(check.terms(&head, &one).unwrap().may_answer);
//!
//! let (keys, tensors) = (KeyMaker::new([7; 32]), KeyRules { form: KeyForm::Tensors, ..KeyRules::default() });
//! let key = |body, rules| keys.key(&head, body, KeyContext::default(), rules).key;
//! assert_eq!(key(&one, &tensors), key(&other, &tensors));
//! assert_ne!(key(&one, &KeyRules::default()), key(&other, &KeyRules::default()), "other bytes");
//!
//! let chat = Request::post("/v1/chat/completions").body(()).unwrap();
//! let body = [Bytes::from_static(br#"{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}"#)];
//! assert_eq!(check.terms(&chat, &body), Err(CacheRefusal::Sampled));
//! ```

#![forbid(unsafe_code)]

mod answer;
mod answer_id;
mod answerable;
mod asking;
mod cache;
mod caching;
mod coalesce;
mod config;
mod counts;
mod directives;
mod generation;
mod ghost;
mod key;
mod plane;
mod refresh;
mod refusal;
mod routes;
mod sampled;
mod sealed;
mod shared;
mod storable;
mod store;
#[cfg(test)]
mod tests;
mod trust;
mod verify;
mod warm_config;

pub use answer::{AnswerAgain, StoredAnswer};
pub use answerable::{AnswerableCheck, RequestTerms};
pub use asking::{Asking, Following, Looked};
pub use cache::{Cache, CacheQuestion, QuestionContext};
pub use caching::Caching;
pub use coalesce::{CoalesceBounds, CoalesceRole, Coalescer, FollowerEnd, FollowerId, LeaderEnd, LeaderTicket, WhyAlone};
pub use config::{CacheKeyForm, CacheMode, CacheRoute, CacheScope, CacheSettings, CoalesceConfig, Config};
pub use counts::{CacheCounts, CacheEvent};
pub use generation::{CacheGeneration, CacheGenerations};
pub use ghost::{CacheGhost, GHOST_CLASSES, GHOST_STEPS, GhostQuestion, GhostSaving};
pub use key::{CacheKey, KeyContext, KeyForm, KeyMaker, KeyRules, KeyScope, KeyedRequest};
pub use plane::{CachePlane, CacheState, GhostCell};
pub use refusal::CacheRefusal;
pub use routes::CacheRoutes;
pub use sealed::{AnswerSealer, SealRefusal, SharedEpoch};
pub use shared::{POLL, SharedAnswers, SharedCounts, SharedKeeper, SharedLookup, SharedMiss, SharedScope};
pub use storable::{AnswerParts, StoringRules, StoringTerms};
pub use store::{AnswerStore, CacheLookup, StoreCounts};
pub use trust::{CacheSeries, CacheTrust, SeriesTrust, TrustRules, TrustState};
pub use verify::{HitCheck, HitVerification, ShareInterval, StaleLimit};
pub use warm_config::WarmConfig;
