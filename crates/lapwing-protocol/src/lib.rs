//! What can be read of a request and its response: the route, the model, the work, token timing, and what the server reports.
//!
//! `detect` finds the protocol of a path, `families` has the fields watched in each protocol, `servers` the fields in which
//! servers report, `wire` the readers of formats, and `exchange_reader` joins them. `recognise` says of whole bodies whether they are
//! what their path suggests.

#![forbid(unsafe_code)]

pub mod amend;
mod body_error;
mod body_reader;
mod bytes_codec;
pub mod config;
mod detect;
#[doc(hidden)]
pub mod exchange_properties;
mod exchange_reader;
mod facts;
mod families;
mod inputs;
mod media;
mod output;
mod pace;
mod passing_body;
mod plan;
mod recognise;
mod route;
mod row_shapes;
pub mod servers;
mod tag;
mod tokens;
pub mod trace_context;
pub mod wire;

pub use body_error::{ErrorPlace, Glance};
pub use bytes_codec::BytesCodec;
pub use config::Config;
pub use exchange_reader::{DetectedProtocol, ExchangeReader, Protocols};
pub use families::matches_glob;
pub use media::Media;
pub use output::OutputKind;
pub use passing_body::UnreadBody;
pub use recognise::{Recognised, Recogniser, WholeBody};
pub use route::fold_route;
pub use tokens::{EncodedText, ModelError, TextEncoder, TokenizerError, Tokenizers};
