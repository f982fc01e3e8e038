//! Makes the copy of a request: what of it goes with it, and what marks it as a copy.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request};

use crate::config::Config;
use crate::proxy::{CapturedBody, PAIR_FIELD, ReplayBody, ShadowJob};
use crate::shadow::{KeptHeaders, SHADOW_FIELD, Secrets};

/// What of a request goes into its copies: the headers of a list, and everything else but secrets.
#[derive(Clone, Debug)]
pub(in crate::app) struct CopiedParts {
    pub(in crate::app) headers: KeptHeaders,
    pub(in crate::app) secrets: Secrets,
}

impl CopiedParts {
    /// By `config`.
    pub(in crate::app) fn new(config: &Config) -> Self {
        Self { headers: KeptHeaders::new(&config.shadow, &config.protocol), secrets: Secrets::new(&config.shadow) }
    }

    /// The headers of the copies of a request with `headers`.
    pub(in crate::app) fn headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut copied = self.headers.of(headers);
        copied.insert(SHADOW_FIELD, HeaderValue::from_static("1"));
        copied
    }

    /// Where the copies of a request to `path` go.
    pub(in crate::app) fn path(&self, path: &PathAndQuery) -> PathAndQuery {
        self.secrets.without(path)
    }
}

/// A copy of the request of `job` with these headers, for the stack that sends copies.
pub(super) fn request(job: &Head, body: &Arc<CapturedBody>) -> Request<ReplayBody> {
    let mut request = Request::new(body.replay());
    *request.method_mut() = job.method.clone();
    *request.uri_mut() = job.path.clone().into();
    request.headers_mut().clone_from(&job.headers);
    request.headers_mut().insert(PAIR_FIELD, HeaderValue::from(job.pair.get()));
    request
}

/// The head of a copy.
#[derive(Debug)]
pub(in crate::app) struct Head {
    pub(in crate::app) pair: crate::ledger::PairId,
    pub(in crate::app) cause: crate::ledger::CopyCause,
    pub(in crate::app) method: http::Method,
    pub(in crate::app) path: PathAndQuery,
    pub(in crate::app) is_h2: bool,
    pub(in crate::app) headers: HeaderMap,
}

impl Head {
    /// The head of the copies of `job`.
    pub(super) fn new(job: &ShadowJob, parts: &CopiedParts) -> Self {
        let is_h2 = job.version == http::Version::HTTP_2;
        Self {
            pair: job.pair,
            cause: job.cause,
            method: job.method.clone(),
            path: parts.path(&job.path),
            is_h2,
            headers: parts.headers(&job.headers),
        }
    }
}
