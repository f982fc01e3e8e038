//! `POST /record`: streams sampled requests to the client that asks, as long as it reads. Nothing is written to disk here.
//!
//! Only a process on this machine may ask, or one with the admin token (`access`).

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::poll_fn;
use http_body::Frame;
use http_body_util::StreamBody;

use super::access::may_read_payloads;
use super::answers::{Admin, deny, refuse, text};
use super::record_options::options;
use lapwing_net::Peer;

/// The content type of a recording.
pub(crate) const LINES: &str = "application/x-ndjson";

/// Answers `POST /record`.
pub(crate) async fn record(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap, uri: Uri) -> Response {
    if let Err(denied) = may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head) {
        return deny(denied);
    }
    let options = match options(&uri) {
        Ok(options) => options,
        Err(error) => return refuse(&error),
    };
    match (admin.surfaces.record)(options) {
        Ok(mut lines) => {
            let frames =
                poll_fn(move |cx| lines.poll_recv(cx).map(|line| line.map(|line| Ok::<_, Infallible>(Frame::data(line)))));
            ([(header::CONTENT_TYPE, LINES)], Body::new(StreamBody::new(frames))).into_response()
        }
        Err(reason) => text(StatusCode::CONFLICT, reason),
    }
}
