//! `POST /cache/purge`: all answers are forgotten, and what is known of who may be trusted: after a change of the model that nothing else tells.

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::access::{AccessDenied, may_read_payloads};
use crate::answers::{Admin, deny, text};
use lapwing_net::Peer;

const REASON: &str = "only a process on the same machine may tell Lapwing to forget answers, or one with the token of admin_token_file: ask \
                      127.0.0.1, in the pod, or send Authorization: Bearer and the token";

/// What was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct CachePurge {
    /// Answers.
    pub(crate) entries: usize,
    /// What they took.
    pub(crate) bytes: u64,
    /// Routes and models that have to show anew that they give the same answer.
    pub(crate) series: usize,
}

/// Answers `POST /cache/purge`.
pub(crate) async fn purge(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap) -> Response {
    // who may see what users sent may also do this
    match may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head) {
        Err(denied) if denied.status == StatusCode::FORBIDDEN => return deny(AccessDenied { reason: REASON, ..denied }),
        Err(denied) => return deny(denied),
        Ok(()) => {}
    }
    let Some(caching) = &admin.surfaces.cache else {
        return text(StatusCode::NOT_FOUND, "there is no cache");
    };
    let before = caching.plane().state();
    caching.plane().purge();
    let forgotten = CachePurge { entries: before.store.entries, bytes: before.store.bytes, series: before.series.len() };
    tracing::info!(entries = forgotten.entries, bytes = forgotten.bytes, "/cache/purge: all answers are forgotten");
    axum::Json(forgotten).into_response()
}
