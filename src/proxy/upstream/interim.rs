//! The upstream's interim responses (1xx). "100 Continue" opens the gate of the request's body; any other is passed on.
//!
//! Only HTTP/1.1 clients get them: hyper's HTTP/2 server has no way to send one.

use std::sync::Arc;

use http::{Request, StatusCode};

use crate::proxy::body::{ContinueGate, RequestBody};
use crate::proxy::exchange::InFlight;

/// Makes hyper pass on the interim responses to `request`, and open `gate`.
pub(super) fn pass_on(request: &mut Request<RequestBody>, in_flight: &InFlight, gate: Option<Arc<ContinueGate>>) {
    if in_flight.is_multiplexed && gate.is_none() {
        return;
    }
    let (meter, is_multiplexed) = (in_flight.meter.clone(), in_flight.is_multiplexed);
    hyper::ext::on_informational(request, move |response| {
        if response.status() == StatusCode::CONTINUE {
            if let Some(gate) = &gate {
                gate.open();
            }
            return;
        }
        if is_multiplexed {
            return;
        }
        let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers() {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        meter.interject(&bytes);
    });
}
