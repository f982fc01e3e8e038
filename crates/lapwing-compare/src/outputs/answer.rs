//! A finished answer, as the comparison takes it.

use bytes::Bytes;
use http::HeaderMap;

use lapwing_ledger::NameProof;

/// A finished answer of the primary or of a target. It borrows everything: nothing is copied before it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct FinishedAnswer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The head's fields, of which `Content-Type`, `Content-Encoding`, `Inference-Header-Content-Length` and `grpc-encoding` are read.
    pub headers: &'a HeaderMap,
    /// `grpc-status` of the trailers or the head; `None` for another protocol.
    pub grpc_status: Option<u32>,
    /// The body as it arrived, in pieces that were cut anywhere.
    pub body: &'a [Bytes],
    /// Whether `body` is the whole body. An answer that was cut off cannot be compared.
    pub is_complete: bool,
}

impl FinishedAnswer<'_> {
    /// Whether the server did what it was asked.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status) && self.grpc_status.is_none_or(|status| status == 0)
    }

    /// Whether the server failed, as opposed to refusing what it was asked. Of gRPC: unknown, deadline exceeded, resource exhausted,
    /// aborted, unimplemented,
    /// internal, unavailable and data loss.
    pub(crate) fn is_server_failure(&self) -> bool {
        self.status >= 500 || self.grpc_status.is_some_and(|status| matches!(status, 2 | 4 | 8 | 10 | 12 | 13 | 14 | 15))
    }

    /// Whether the answer proves that the request's route is real.
    #[must_use]
    pub fn proves_names(&self) -> bool {
        let proof = self.grpc_status.map_or_else(|| NameProof::of_status(self.status), NameProof::of_grpc);
        proof == NameProof::Proven
    }

    /// What the server says about its success: `200`, or `grpc 14`.
    pub(crate) fn status_text(&self) -> String {
        match self.grpc_status {
            Some(status) if (200..300).contains(&self.status) => format!("grpc {status}"),
            _ => self.status.to_string(),
        }
    }
}
