//! The request that a target gets of a copied one: what of it goes with the copy, and what marks it as one; or a call of the model that
//! its mapping leads to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use tokio::sync::Semaphore;

use crate::counters::ShadowDrop;
use crate::header_names::PAIR_FIELD;
use crate::kept::CopiedParts;
use crate::mapping::{MappedCall, MappingFault, MappingTable, RequestMapping};
use crate::tap::ShadowJob;
use lapwing_ledger::{CopyCause, PairId};
use lapwing_net::error_text;
use lapwing_protocol::fold_route;
use lapwing_proxy::{CaptureBudget, CapturedBody, CapturedExchange, ReplayBody, capture_whole};

/// How many bytes of a call are JSON.
const JSON_BYTES: HeaderName = HeaderName::from_static("inference-header-content-length");
/// What describes the body that is replaced, and the answer that its client wants.
const OF_THE_BODY: [HeaderName; 5] = [ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE];

/// The head of a copy.
#[derive(Debug)]
pub(crate) struct CopyHead {
    pub(crate) pair: PairId,
    pub(crate) cause: CopyCause,
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    pub(crate) is_h2: bool,
    pub(crate) headers: HeaderMap,
}

impl CopyHead {
    /// The head of the copies of `job`.
    pub(crate) fn new(job: &ShadowJob, parts: &CopiedParts) -> Self {
        let CapturedExchange { method, path, version, headers, .. } = &job.exchange;
        Self {
            pair: job.pair,
            cause: job.cause,
            method: method.clone(),
            path: parts.path(path),
            is_h2: *version == http::Version::HTTP_2,
            headers: parts.headers(headers),
        }
    }
}

/// By what a request became a call of a model.
#[derive(Clone, Debug)]
pub(crate) struct AppliedMapping {
    pub(crate) mapping: Arc<RequestMapping>,
    /// How many tokens each text of the request has.
    pub(crate) token_counts: Arc<[u32]>,
}

/// A request as a target gets it.
#[derive(Clone, Debug)]
pub(crate) struct CopyRequest {
    pub(crate) head: Arc<CopyHead>,
    pub(crate) body: Arc<CapturedBody>,
    /// By what it was made, unless it is the copied request itself.
    pub(crate) mapping: Option<AppliedMapping>,
}

impl CopyRequest {
    /// The request with its mark, for the stack that sends copies.
    pub(crate) fn marked(&self) -> Request<ReplayBody> {
        let mut request = Request::new(self.body.replay());
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = self.head.path.clone().into();
        request.headers_mut().clone_from(&self.head.headers);
        request.headers_mut().insert(PAIR_FIELD, HeaderValue::from(self.head.pair.get()));
        request
    }
}

/// Makes the requests of one target.
#[derive(Debug)]
pub(crate) struct RequestPreparer {
    target: String,
    /// Where calls of the target's model go.
    path: Option<PathAndQuery>,
    mappings: Arc<MappingTable>,
    /// One at a time: a document takes up to 16 times the memory of its text.
    turn: Semaphore,
    /// The reasons that were logged, as bits by [`ShadowDrop`].
    logged: AtomicU32,
}

impl RequestPreparer {
    pub(crate) fn new(target: String, mappings: Arc<MappingTable>) -> Self {
        let path = format!("/v2/models/{target}/infer").parse().ok();
        Self { target, path, mappings, turn: Semaphore::new(1), logged: AtomicU32::new(0) }
    }

    /// The request for a copied one, whose memory is taken from `budget`. A mapping works on a thread for long work, so that copies to
    /// other targets do not wait for it.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        head: &Arc<CopyHead>,
        body: &Arc<CapturedBody>,
        budget: &Arc<CaptureBudget>,
    ) -> Result<CopyRequest, ShadowDrop> {
        if self.mapping(head).is_none() {
            return self.prepare_here(head, body, budget);
        }
        let _turn = self.turn.acquire().await;
        let (this, head, body, budget) = (self.clone(), head.clone(), body.clone(), budget.clone());
        let prepared = tokio::task::spawn_blocking(move || this.prepare_here(&head, &body, &budget)).await;
        prepared.unwrap_or_else(|error| {
            tracing::error!(target = self.target, %error, "mapping a request panicked; this is a fault of Lapwing");
            Err(ShadowDrop::MappingBody)
        })
    }

    /// The same on this thread.
    pub(crate) fn prepare_here(
        &self,
        head: &Arc<CopyHead>,
        body: &Arc<CapturedBody>,
        budget: &Arc<CaptureBudget>,
    ) -> Result<CopyRequest, ShadowDrop> {
        let Some((mapping, path)) = self.mapping(head).zip(self.path.clone()) else {
            return Ok(CopyRequest { head: head.clone(), body: body.clone(), mapping: None });
        };
        let MappedCall { json_bytes, body, token_counts } =
            mapping.call(&head.headers, body.pieces()).map_err(|fault| self.log(head, &fault))?;
        let mut headers = head.headers.clone();
        OF_THE_BODY.iter().for_each(|name| drop(headers.remove(name)));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(JSON_BYTES, json_bytes.into());
        let head = CopyHead { pair: head.pair, cause: head.cause, method: Method::POST, path, is_h2: false, headers };
        Ok(CopyRequest {
            head: Arc::new(head),
            body: whole_body(body, None, budget)?,
            mapping: Some(AppliedMapping { mapping, token_counts }),
        })
    }

    fn mapping(&self, head: &CopyHead) -> Option<Arc<RequestMapping>> {
        if self.mappings.is_empty() {
            return None;
        }
        self.mappings.of(&fold_route(head.method.as_str(), head.path.path()).name).cloned()
    }

    /// Logs the first fault of each kind as a warning, because it may be one of the configuration.
    fn log(&self, head: &CopyHead, fault: &MappingFault) -> ShadowDrop {
        let (reason, path, fault) = (fault.drop_reason(), error_text(head.path.path()), error_text(fault));
        let bit = 1 << (reason as u32);
        if self.logged.fetch_or(bit, Relaxed) & bit == 0 {
            tracing::warn!(
                target = self.target,
                path,
                reason = reason.name(),
                fault,
                "a request cannot be mapped; further ones are counted only"
            );
        } else {
            tracing::debug!(target = self.target, path, fault, "a request cannot be mapped");
        }
        reason
    }
}

/// A body that is there, as one that was captured.
///
/// # Errors
///
/// Why the budget has no room for it.
pub(crate) fn whole_body(
    body: Bytes,
    trailers: Option<HeaderMap>,
    budget: &Arc<CaptureBudget>,
) -> Result<Arc<CapturedBody>, ShadowDrop> {
    let body = Full::new(body);
    let captured = match trailers {
        Some(trailers) => capture_whole(body.with_trailers(async move { Some(Ok(trailers)) }), budget).now_or_never(),
        None => capture_whole(body, budget).now_or_never(),
    };
    // it never waits
    captured.map_or(Err(ShadowDrop::Cut), |captured| captured.map(Arc::new).map_err(ShadowDrop::from))
}
