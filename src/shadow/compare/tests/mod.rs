//! Whole answers against each other: what an operator would see.

mod answers;
mod grpc;
mod hostile;
mod numpy;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::ledger::TraceId;

/// An answer that owns what a [`FinishedAnswer`] borrows.
pub(in crate::shadow) struct TestAnswer {
    pub(in crate::shadow) status: u16,
    pub(in crate::shadow) headers: HeaderMap,
    pub(in crate::shadow) grpc_status: Option<u32>,
    pub(in crate::shadow) body: Vec<Bytes>,
    pub(in crate::shadow) is_complete: bool,
}

impl TestAnswer {
    pub(in crate::shadow) fn new(media: &str, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, media.parse().unwrap());
        Self { status: 200, headers, grpc_status: None, body: vec![body.into()], is_complete: true }
    }

    pub(in crate::shadow) fn json(body: impl Into<String>) -> Self {
        Self::new("application/json", body.into())
    }

    pub(in crate::shadow) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value.to_string()).unwrap());
        self
    }

    pub(in crate::shadow) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(in crate::shadow) fn as_finished(&self) -> FinishedAnswer<'_> {
        FinishedAnswer {
            status: self.status,
            headers: &self.headers,
            grpc_status: self.grpc_status,
            body: &self.body,
            is_complete: self.is_complete,
        }
    }
}

pub(super) use hostile::document as json_document;

pub(super) fn trace(n: u8) -> TraceId {
    TraceId([n.max(1); 16])
}

/// Compares with the defaults.
pub(super) fn compare(kind: crate::protocol::OutputKind, primary: &TestAnswer, candidate: &TestAnswer) -> Comparison {
    compare_by(&Config::default(), kind, primary, candidate)
}

pub(super) fn compare_by(
    config: &Config,
    kind: crate::protocol::OutputKind,
    primary: &TestAnswer,
    candidate: &TestAnswer,
) -> Comparison {
    Comparer::new(config).compare("POST /x", kind, &primary.as_finished(), &candidate.as_finished())
}

/// The fields that differ, each with the names of its kinds.
pub(super) fn differing(comparison: &Comparison) -> Vec<(String, Vec<&'static str>)> {
    let differing = comparison.fields.iter().filter(|field| !field.kinds.is_empty());
    differing.map(|field| (field.field.clone(), field.kinds.iter().map(DifferenceKind::name).collect())).collect()
}
