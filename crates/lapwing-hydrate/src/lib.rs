//! Features of a request, looked up and written into its body.
//!
//! A model server that is given an id looks its features up itself, mostly. Where it cannot, because it takes tensors only, Lapwing does it
//! here: narrowly, for the Open Inference Protocol as JSON and for V1 JSON, with one read and within a deadline.
//!
//! - `config` is the list `hydrate`, `rules` what of it takes a request, `hydration` one rule: what it reads, asks and writes; `stores` are
//!   the clients, all else here is without a clock and without a connection;
//! - `asked` reads the entities of a request (`entity`), row by row, from pieces of its text (`document`, `place`);
//! - `lookup` asks for features and reads answers: hashes and strings of one's own (`template`) and Feast's (`feast`), as `number`s;
//! - `edit` puts what was found into the body, which otherwise stays byte for byte;
//! - `passed` says why a request is left as it is, `refused` why it is answered with an error.
//!
//! ```
//! use bytes::Bytes;
//! use lapwing_hydrate::{HydrateAnswer, HydrateQuestion, HydrateRule, Hydration};
//!
//! let rule: HydrateRule = serde_json::from_str(r#"{
//!     "match": {"model": "fraud"}, "entity": [{"name": "user", "pointer": "/instances/*/user"}],
//!     "store": {"kind": "redis", "url": "redis://127.0.0.1", "key": "user:{user}"},
//!     "features": [{"name": "age"}, {"name": "risk"}], "into": {"pointer": "/instances/*/features"}
//! }"#).unwrap();
//! let hydration = Hydration::new(&rule).unwrap();
//! let request = hydration.read(Bytes::from_static(br#"{"instances": [{"user": "ada", "amount": 1.50}]}"#)).unwrap();
//! let HydrateQuestion::Redis(commands) = hydration.question(&request) else { panic!() };
//! assert_eq!(commands, [["HMGET", "user:ada", "age", "risk"].map(|word| word.as_bytes().to_vec())]);
//! let answer = HydrateAnswer::Redis(vec![vec![Some(Bytes::from("36")), Some(Bytes::from("0.25"))]]);
//! let filled = hydration.fill(&request, &answer, 0).unwrap();
//! assert_eq!(filled.body, r#"{"instances": [{"user": "ada", "amount": 1.50,"features":[36.0,0.25]}]}"#);
//! ```

#![forbid(unsafe_code)]

mod asked;
mod config;
mod document;
mod edit;
mod entity;
mod feast;
mod hydration;
mod lookup;
mod number;
mod passed;
mod place;
mod refused;
mod rules;
mod stores;
mod template;
#[cfg(test)]
mod tests;
mod types;

pub use config::{
    HYDRATE, HydrateEntity, HydrateFeature, HydrateInto, HydrateRule, HydrateStore, KeyVersion, OnMiss, PlainEncoding, StoreKind,
    check_hydrate,
};
pub use hydration::{HydratedBody, HydratingRequest, Hydration};
pub use lookup::{HydrateAnswer, HydrateCommand, HydrateQuestion};
pub use number::LookupMiss;
pub use passed::HydratePassed;
pub use refused::{HydrateRefused, MissingFeature};
pub use rules::Hydrator;
pub use stores::HydrateKeepers;
pub use types::{EntityType, FeatureDatatype};
