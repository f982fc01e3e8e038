//! The time that a scenario added to a request at the server, and the field of the answer that tells it.

use std::fmt::Write as _;

use arrayvec::ArrayVec;
use http::{HeaderName, HeaderValue};

use lapwing_ledger::{Stage, Stamp};

/// The field of an answer that tells the server's part: `hydration;ns=40000000, arrived;ns=…`.
pub(crate) static INJECTED: HeaderName = HeaderName::from_static("x-demo-injected");
/// The name in that field of the moment at which the server began with the request.
pub(crate) const ARRIVED: &str = "arrived";

/// Time that the script added to a request, by stage.
pub(crate) type Injected = ArrayVec<(Stage, u64), 8>;

/// The field's value.
pub(crate) fn field(injected: &Injected, arrived: Stamp) -> Option<HeaderValue> {
    let mut text = String::new();
    for (stage, ns) in injected {
        let _ = write!(text, "{};ns={ns}, ", stage.name());
    }
    let _ = write!(text, "{ARRIVED};ns={}", arrived.as_ns());
    HeaderValue::try_from(text).ok()
}

/// Adds time to a stage; no time adds nothing.
pub(crate) fn add(injected: &mut Injected, stage: Stage, ns: u64) {
    match injected.iter_mut().find(|(known, _)| *known == stage) {
        Some((_, sum)) => *sum += ns,
        None if ns > 0 => {
            let _ = injected.try_push((stage, ns));
        }
        None => {}
    }
}
