//! The admin server: its listener, its router, who must show the token, and what every answer forbids.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::Response;
use tokio_util::sync::CancellationToken;

use super::access::may_read;
use super::answers::{Admin, deny, text};
use super::endpoints::{ENDPOINTS, list};
use super::surfaces::Surfaces;
use super::{openapi, page};
use lapwing_net::{AcceptLimits, BoundListener, MAX_ERROR_TEXT, ServerLimits};
use lapwing_settings::AdminTokenFor;

/// The time for a connection's first request to come.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// A connection without a request is closed after this time: above the minute between two scrapes.
const IDLE: Duration = Duration::from_secs(120);
/// The time for an answer to be read, longer by what is read meanwhile.
const WRITE: Duration = Duration::from_secs(5);

/// How long answers that are being written may take after the stop: a client that never finishes reading must not keep the
/// process alive.
const DRAIN: Duration = Duration::from_secs(2);
/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Serves `listener` until `stop`, then ends when the responses begun are written, at the latest after two seconds.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve(listener: impl Into<BoundListener>, surfaces: Surfaces, stop: CancellationToken) -> io::Result<()> {
    let limits = ServerLimits {
        accept: AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections: Some(lapwing_net::control_connections()) },
        grace: DRAIN,
        counters: Some(surfaces.counters.clone()),
        first_request_timeout: Some(FIRST_REQUEST),
        idle_timeout: Some(IDLE),
        write_timeout: Some(WRITE),
        tells_peer: true,
        http1_only: true,
        ..ServerLimits::new("admin")
    };
    lapwing_net::serve(listener.into().registered()?, router(surfaces), limits, stop).await;
    Ok(())
}

/// The paths as a service, without a listener.
pub fn router(surfaces: Surfaces) -> Router {
    let admin = Admin::new(surfaces, page::STREAMS, openapi::document);
    let routed = |is_guarded: bool| {
        let endpoints = ENDPOINTS.iter().filter(|endpoint| endpoint.is_guarded == is_guarded);
        endpoints.fold(Router::new(), |router, endpoint| router.route(endpoint.path, (endpoint.handler)()))
    };
    routed(true)
        .route_layer(from_fn_with_state(admin.clone(), ask_for_token))
        .merge(routed(false))
        .merge(page::files())
        .fallback(async |uri: Uri| {
            let path = lapwing_net::excerpt(uri.path().to_owned(), MAX_ERROR_TEXT);
            text(StatusCode::NOT_FOUND, format!("no such path: {path}; there is\n\n{}", list()))
        })
        .method_not_allowed_fallback(async || {
            text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered, and POST at /record, /leave and /cache/purge")
        })
        .with_state(admin)
        .layer(map_response(forbid_caching))
}

/// Refuses who does not show the token, where it is asked for everything.
async fn ask_for_token(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    match &admin.surfaces.admin_token {
        Some(token) if admin.surfaces.admin_token_for == AdminTokenFor::Everything => match may_read(token, request.headers()) {
            Ok(()) => next.run(request).await,
            Err(denied) => deny(denied),
        },
        _ => next.run(request).await,
    }
}

/// Forbids caches to keep the response, which is out of date at once.
async fn forbid_caching(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
