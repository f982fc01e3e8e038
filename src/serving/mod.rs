//! The Open Inference Protocol in front of the engine's models: REST (JSON and binary tensors) and gRPC on one port, HTTP/1.1 or
//! HTTP/2 cleartext, with `/metrics` and health beside them.
//!
//! It decodes, calls a [`Servable`](lapwing_engine::service::Servable), encodes, and says of each answer who ran it and where the
//! time went. It never loads a model, never runs one, and never batches.

mod catalogue;
pub mod config;
mod deadline;
mod flight;
mod grpc;
mod limits;
mod metrics;
mod placement;
mod refusal;
mod rest;
mod router;
mod server;
#[cfg(test)]
mod tests;
mod timing;

pub use catalogue::{Catalogue, CatalogueError};
pub use config::Config;
pub use limits::Limits;
pub use metrics::FAMILIES;
pub use server::serve;
