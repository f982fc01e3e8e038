//! The Open Inference Protocol in front of the engine's models: REST (JSON and binary tensors) and gRPC on one port, HTTP/1.1 or
//! HTTP/2 cleartext, with `/metrics` and health.
//!
//! It decodes requests, calls a [`Servable`](lapwing_model::service::Servable), encodes the answers, and reports with each answer which
//! executor ran it and where the time went. It never loads, runs or batches models itself, and never takes more of a request than the
//! bounds in `bounds` and [`Limits`] say.
//!
//! ```
//! use std::sync::Arc;
//! use axum::body::Body;
//! use http::Request;
//! use lapwing_serving::{Catalogue, Limits, router};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let server = router(Arc::new(Catalogue::new(Vec::new()).unwrap()), Limits::default());
//! let answer = server.oneshot(Request::get("/v2/models/digits").body(Body::empty()).unwrap()).await.unwrap();
//! assert_eq!(answer.status(), 404);
//! # }
//! ```

#![forbid(unsafe_code)]

mod body;
mod bounds;
mod catalogue;
pub mod config;
mod error;
mod grpc;
mod in_flight;
mod input_shape;
mod limits;
mod metrics;
mod placement;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod request_properties;
mod rest;
mod router;
mod server;
mod state;
#[cfg(test)]
mod tests;

pub use catalogue::{Catalogue, CatalogueError};
pub use config::Config;
pub use limits::Limits;
pub use metrics::FAMILIES;
pub use router::router;
pub use server::{serve, serve_router};
