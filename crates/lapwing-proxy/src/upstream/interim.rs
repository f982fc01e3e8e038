//! The upstream's interim responses (1xx). "100 Continue" opens the gate of the request's body; any other is passed on.
//!
//! Only HTTP/1.1 clients get them: hyper's HTTP/2 server has no way to send one, and HTTP/1.0 knows none (RFC 9110, 15.2).

use std::sync::Arc;

use http::{HeaderName, Request, StatusCode, Version, header};

use crate::body::{ContinueGate, RequestBody};
use crate::in_flight::InFlight;
use lapwing_metrics::Counter;

/// Of the upstream's connection, or of a body that an interim response cannot have (RFC 9110, 8.6).
const NOT_PASSED: [HeaderName; 5] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Makes hyper pass on the interim responses to `request`, and open `gate`.
pub(crate) fn pass_on(request: &mut Request<RequestBody>, in_flight: &Arc<InFlight>, gate: Option<Arc<ContinueGate>>) {
    let takes_interim = !in_flight.is_multiplexed && request.version() == Version::HTTP_11;
    if !takes_interim && gate.is_none() {
        return;
    }
    let in_flight = in_flight.clone();
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
        if !in_flight.meter.interject(&bytes) {
            in_flight.context.counters.bump(Counter::InterimDropped);
        }
    });
}
