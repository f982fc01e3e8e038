//! The outcome of a gRPC call by its `grpc-status` (gRPC over HTTP/2), and what that proves of the names in the request.

use http::HeaderMap;

use lapwing_ledger::{NameProof, Outcome};

/// Returns a gRPC call's outcome by its `grpc-status`, if `fields` have one.
pub(crate) fn grpc_outcome(fields: &HeaderMap) -> Option<(Outcome, NameProof)> {
    let code: u32 = fields.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    Some((Outcome::of_grpc(code), NameProof::of_grpc(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_codes_are_told_apart() {
        let outcome = |code: &str| grpc_outcome(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]));
        assert_eq!(outcome("0"), Some((Outcome::Ok, NameProof::Proven)));
        assert_eq!(outcome("5"), Some((Outcome::ClientError, NameProof::Unproven)));
        assert_eq!(outcome("12"), Some((Outcome::ServerError, NameProof::Unproven)));
        assert_eq!(outcome("14"), Some((Outcome::ServerError, NameProof::Proven)));
        assert_eq!(outcome("x"), None);
    }
}
