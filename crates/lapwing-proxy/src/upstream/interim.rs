//! The upstream's interim responses (1xx). "100 Continue" opens the gate of the request's body; any other is passed on.
//!
//! Only HTTP/1.1 clients get them: hyper's HTTP/2 server has no way to send one, and HTTP/1.0 knows none (RFC 9110, 15.2).

use std::sync::Arc;

use http::{HeaderName, Request, StatusCode, Version, header};

use crate::body::{ContinueGate, RequestBody};

/// Of the upstream's connection, or of a body that an interim response cannot have (RFC 9110, 8.6).
const NOT_PASSED: [HeaderName; 5] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Who takes interim responses: a client, over the connection of its request.
pub(crate) trait InterimReceiver: Send + Sync + 'static {
    /// Whether requests share the connection (HTTP/2).
    fn is_multiplexed(&self) -> bool;

    /// Sends the client a response before its own, or drops it and counts that.
    fn interject(&self, response: &[u8]);
}

/// Makes hyper pass on the interim responses to `request` to `client`, and open `gate`.
pub(crate) fn pass_on<C: InterimReceiver>(request: &mut Request<RequestBody>, client: &Arc<C>, gate: Option<Arc<ContinueGate>>) {
    let takes_interim = !client.is_multiplexed() && request.version() == Version::HTTP_11;
    if !takes_interim && gate.is_none() {
        return;
    }
    let client = client.clone();
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE {
            if let Some(gate) = &gate {
                gate.open();
            }
            return;
        }
        if !takes_interim {
            return;
        }
        let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers().iter().filter(|(name, _)| !NOT_PASSED.contains(name)) {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        client.interject(&bytes);
    });
}
