//! What a response's head and trailers say of its outcome, and what that proves of the names in the request.

use http::{HeaderMap, HeaderName, StatusCode};

use lapwing_ledger::{NameProof, Outcome};

/// The content types of gRPC.
pub const GRPC: &[u8] = b"application/grpc";
/// As a name, so that it is not parsed for each response.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The content types of gRPC-Web, whose status is in the body and stays unknown.
const GRPC_WEB: &[u8] = b"application/grpc-web";

/// Whether a response of this content type is a gRPC call's, whose status is in its trailers; gRPC-Web's is in its body.
#[must_use]
#[inline]
pub fn is_grpc(content_type: &[u8]) -> bool {
    content_type.starts_with(GRPC) && !content_type.starts_with(GRPC_WEB)
}

/// The outcome of a response by its head: by its status, or by the `grpc-status` that a gRPC call without messages has there. A gRPC call
/// that has none yet proves the names once it has content.
#[must_use]
#[inline]
pub fn head_outcome(status: StatusCode, headers: &HeaderMap, content_type: &[u8]) -> (Outcome, NameProof) {
    let status = status.as_u16();
    let outcome = match status {
        500.. => Outcome::ServerError,
        400..500 => Outcome::ClientError,
        _ => Outcome::Ok,
    };
    let proof = NameProof::of_status(status);
    if !content_type.starts_with(GRPC) {
        return (outcome, proof);
    }
    let is_plain = !content_type.starts_with(GRPC_WEB) && proof == NameProof::Proven;
    grpc_outcome(headers).unwrap_or((outcome, if is_plain { NameProof::WithContent } else { proof }))
}

/// A gRPC call's outcome by its `grpc-status` (gRPC over HTTP/2), if `fields` have one.
#[must_use]
#[inline]
pub fn grpc_outcome(fields: &HeaderMap) -> Option<(Outcome, NameProof)> {
    let code = grpc_status(fields)?;
    Some((Outcome::of_grpc(code), NameProof::of_grpc(code)))
}

/// A gRPC call's `grpc-status`, if `fields` have one that is a number.
#[must_use]
#[inline]
pub fn grpc_status(fields: &HeaderMap) -> Option<u32> {
    fields.get(&GRPC_STATUS)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_field(code: &str) -> HeaderMap {
        HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())])
    }

    #[test]
    fn grpc_codes_are_told_apart() {
        let outcome = |code: &str| grpc_outcome(&status_field(code));
        assert_eq!(outcome("0"), Some((Outcome::Ok, NameProof::Proven)));
        assert_eq!(outcome("5"), Some((Outcome::ClientError, NameProof::Unproven)));
        assert_eq!(outcome("12"), Some((Outcome::ServerError, NameProof::Unproven)));
        assert_eq!(outcome("14"), Some((Outcome::ServerError, NameProof::Proven)));
        assert_eq!(outcome("x"), None);
    }

    #[test]
    fn a_head_says_the_outcome_and_what_it_proves() {
        let of = |status: u16, content_type: &str, fields: &HeaderMap| {
            head_outcome(StatusCode::from_u16(status).unwrap(), fields, content_type.as_bytes())
        };
        let none = HeaderMap::new();
        assert_eq!(of(200, "application/json", &none), (Outcome::Ok, NameProof::Proven));
        assert_eq!(of(404, "", &none), (Outcome::ClientError, NameProof::Unproven));
        assert_eq!(of(503, "", &none), (Outcome::ServerError, NameProof::Proven));
        assert_eq!(of(200, "text/plain", &status_field("5")), (Outcome::Ok, NameProof::Proven), "no gRPC");
        assert_eq!(of(200, "application/grpc+proto", &none), (Outcome::Ok, NameProof::WithContent), "its status is to come");
        assert_eq!(of(200, "application/grpc", &status_field("12")), (Outcome::ServerError, NameProof::Unproven));
        assert_eq!(of(200, "application/grpc-web", &none), (Outcome::Ok, NameProof::Proven), "its status is in the body");
        assert_eq!(of(404, "application/grpc", &none), (Outcome::ClientError, NameProof::Unproven));
    }
}
