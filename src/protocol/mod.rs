//! What can be read of a request and its response: the route, the model, the work, the pace, and what the server reports.

pub mod amend;
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
mod plan;
mod route;
pub mod servers;
mod tag;
mod tokens;
pub mod wire;

pub use bytes_codec::BytesCodec;
pub use config::Config;
pub use exchange_reader::{DetectedProtocol, ExchangeReader, Protocols};
pub use route::{FoldedRoute, fold_route};
pub use tokens::{ModelError, TokenizerError, Tokenizers};
