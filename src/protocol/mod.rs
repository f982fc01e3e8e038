//! What can be read of a request and its response: the route, the model, the work, the pace, and what the server reports.

pub mod amend;
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
mod raw;
mod reader;
mod route;
pub mod servers;
mod tag;
mod tokens;
pub mod wire;

pub use config::Config;
pub use exchange_reader::{ExchangeReader, Protocols, Spoken};
pub use raw::Raw;
pub use route::{Route, route};
pub use tokens::{ModelError, TokenizerError, Tokenizers};
