//! `POST /leave`: clients are to go elsewhere. Requests are served on, but each connection ends with its next answer, and `/readyz` fails;
//! what stops the process is its signal.
//!
//! A pod that is taken away goes on getting requests over connections that clients keep, long after the Services have forgotten it. Its
//! preStop hook says this (`lapwing pre-stop`), when the pod begins to end, before its server gets a signal.

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::access::{AccessDenied, may_read_payloads};
use super::answers::{Admin, deny, text};
use lapwing_net::Peer;

const REASON: &str = "only a process on the same machine may tell Lapwing to leave, or one with the token of admin_token_file: ask 127.0.0.1, \
                      in the pod, or send Authorization: Bearer and the token";

/// Answers `POST /leave`.
pub(crate) async fn leave(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap) -> Response {
    // who may see what users sent may also do this
    match may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head) {
        Err(denied) if denied.status == StatusCode::FORBIDDEN => return deny(AccessDenied { reason: REASON, ..denied }),
        Err(denied) => return deny(denied),
        Ok(()) => {}
    }
    if !admin.surfaces.leaving.is_cancelled() {
        tracing::info!("/leave: each client's connection ends with its next answer");
        admin.surfaces.leaving.cancel();
    }
    text(StatusCode::OK, "leaving".to_owned())
}
