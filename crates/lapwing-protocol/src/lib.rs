//! What can be read of a request and its response: the route, the model, the work, token timing, and what the server reports.
//!
//! `detect` finds the protocol of a path, `families` has the fields watched in each protocol, `servers` the fields in which
//! servers report, `wire` the readers of formats, and `exchange_reader` joins them. `recognise` says whether whole bodies are what
//! their path suggests.
//!
//! Bytes are read after they went on their way: nothing here delays, changes or refuses them, and what cannot be read stays unknown.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
//! use lapwing_ledger::{Basis, Ledger, Stamp, Unit};
//! use lapwing_protocol::{Config, Protocols};
//!
//! let protocols = Protocols::new(&Config::default());
//! let head = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
//! let mut reader = protocols.open(&protocols.detect(&Method::POST, "/v1/completions"), &head).unwrap();
//! [&br#"{"model": "m", "pro"#[..], br#"mpt": ["one", "two"]}"#].map(|piece| reader.request(piece));
//! reader.response_head(200, &head);
//! reader.response(br#"{"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 7}}"#, 1_000);
//! let mut ledger = Ledger::open(Stamp::default(), 0);
//! assert_eq!(reader.close(&mut ledger), Some("m"));
//! assert_eq!(ledger.work.get(Unit::OutputToken), Some((7, Basis::Reported)));
//! ```

#![forbid(unsafe_code)]

pub mod amend;
mod body_error;
mod body_value;
mod bytes_codec;
pub mod config;
pub mod deadline;
mod detect;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod exchange_properties;
mod exchange_reader;
mod facts;
mod families;
mod inputs;
mod json_pointer;
mod media;
mod output;
mod pace;
mod passing_body;
mod plan;
mod recognise;
mod request_key;
pub mod request_match;
mod route;
mod row_shapes;
pub mod servers;
mod share_draw;
mod tag;
mod tokenizer;
mod tokens;
pub mod trace_context;
pub mod wire;

pub use body_error::{ErrorPlace, Glance};
pub use body_value::BodyPointer;
pub use bytes_codec::BytesCodec;
pub use config::Config;
pub use exchange_reader::{DetectedProtocol, ExchangeReader, Protocols, ToldByBody};
pub use families::matches_glob;
pub use media::{Media, is_grpc};
pub use output::OutputKind;
pub use passing_body::UnreadBody;
pub use recognise::{Recognised, Recogniser, WholeBody};
pub use request_key::{RequestKey, hash_key};
pub use route::fold_route;
pub use share_draw::ShareDraw;
pub use tokenizer::{EncodedText, ModelError, TextEncoder};
pub use tokens::{TokenizerError, Tokenizers};
