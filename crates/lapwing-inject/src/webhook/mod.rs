//! The admission webhook that puts Lapwing into the pods of a cluster.
//!
//! - [`router`] answers reviews: `POST /inject` for pods that ask, `POST /inject/namespace` for all but those that decline.
//! - [`admin_router`] says whether it is alive and ready, and what it has done.
//!
//! It asks the API server nothing, and keeps nothing: what a review says is all that it knows. It never denies a pod.
//!
//! ```
//! use std::sync::Arc;
//! use axum::body::Body;
//! use http::Request;
//! use lapwing_inject::InjectOptions;
//! use lapwing_inject::webhook::{WebhookMetrics, router};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let server = router(InjectOptions::default(), Arc::new(WebhookMetrics::new(Arc::default())));
//! let answer = server.oneshot(Request::post("/inject").body(Body::from("{}")).unwrap()).await.unwrap();
//! assert_eq!(answer.status(), 400);
//! # }
//! ```

mod metrics;
mod review;
mod router;
mod server;

pub use self::metrics::WebhookMetrics;
pub use self::review::{INJECT, ReviewError, ReviewResult, review};
pub use self::router::{MAX_REVIEW_BYTES, admin_router, router};
pub use self::server::{serve, serve_admin};
