//! The outcome of a gRPC call by its `grpc-status` (gRPC over HTTP/2).

use http::HeaderMap;

use crate::ledger::Outcome;

/// Returns a gRPC call's outcome by its `grpc-status`, if `fields` have one: 0 is OK; codes that blame the caller are client
/// errors; all others are server errors.
pub(crate) fn grpc_outcome(fields: &HeaderMap) -> Option<Outcome> {
    let code: u32 = fields.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    Some(match code {
        0 => Outcome::Ok,
        1 | 3 | 5 | 6 | 7 | 9 | 11 | 16 => Outcome::ClientError,
        _ => Outcome::ServerError,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_codes_are_told_apart() {
        let outcome = |code: &str| grpc_outcome(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]));
        assert_eq!(outcome("0"), Some(Outcome::Ok));
        assert_eq!(outcome("5"), Some(Outcome::ClientError));
        assert_eq!(outcome("14"), Some(Outcome::ServerError));
        assert_eq!(outcome("x"), None);
    }
}
