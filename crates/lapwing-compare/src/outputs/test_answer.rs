//! Answers that tests write.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::FinishedAnswer;

/// An answer that owns what a [`FinishedAnswer`] borrows.
#[derive(Debug)]
pub struct TestAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers of the head.
    pub headers: HeaderMap,
    /// gRPC's own status.
    pub grpc_status: Option<u32>,
    /// The pieces of the body.
    pub body: Vec<Bytes>,
    /// Whether the body is complete.
    pub is_complete: bool,
}

impl TestAnswer {
    /// A complete answer with status 200.
    #[must_use]
    pub fn new(media: &str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, media.parse().unwrap());
        Self { status: 200, headers, grpc_status: None, body: vec![body.into()], is_complete: true }
    }

    /// A complete JSON answer.
    #[must_use]
    pub fn json(body: impl Into<String>) -> Self {
        Self::new("application/json", body.into())
    }

    /// The same with a further header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value.to_string()).unwrap());
        self
    }

    /// The same with another status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// What a comparison takes.
    #[must_use]
    pub fn as_finished(&self) -> FinishedAnswer<'_> {
        FinishedAnswer {
            status: self.status,
            headers: &self.headers,
            grpc_status: self.grpc_status,
            body: &self.body,
            is_complete: self.is_complete,
        }
    }
}
