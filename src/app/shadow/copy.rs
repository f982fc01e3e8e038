//! Makes the copy of a request: what of it goes with it, and what marks it as a copy.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request};

use crate::config::Config;
use lapwing_proxy::{CapturedBody, Incomplete, PAIR_FIELD, ReplayBody, ShadowJob};
use lapwing_shadow::{KeptHeaders, SHADOW_FIELD, Secrets, ShadowDrop};

/// What of a request goes into its copies: the headers of a list, and everything else but secrets.
#[derive(Clone, Debug)]
pub(crate) struct CopiedParts {
    pub(crate) headers: KeptHeaders,
    pub(crate) secrets: Secrets,
}

impl CopiedParts {
    /// By `config`.
    pub(crate) fn new(config: &Config) -> Self {
        Self { headers: KeptHeaders::new(&config.shadow, &config.protocol), secrets: Secrets::new(&config.shadow) }
    }

    /// The headers of the copies of a request with `headers`.
    pub(crate) fn headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut copied = self.headers.of(headers);
        copied.insert(SHADOW_FIELD, HeaderValue::from_static("1"));
        copied
    }

    /// Where the copies of a request to `path` go.
    pub(crate) fn path(&self, path: &PathAndQuery) -> PathAndQuery {
        self.secrets.without(path)
    }
}

/// A copy of the request of `job` with these headers, for the stack that sends copies.
pub(crate) fn request(job: &Head, body: &Arc<CapturedBody>) -> Request<ReplayBody> {
    let mut request = Request::new(body.replay());
    *request.method_mut() = job.method.clone();
    *request.uri_mut() = job.path.clone().into();
    request.headers_mut().clone_from(&job.headers);
    request.headers_mut().insert(PAIR_FIELD, HeaderValue::from(job.pair.get()));
    request
}

/// The head of a copy.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) pair: lapwing_ledger::PairId,
    pub(crate) cause: lapwing_ledger::CopyCause,
    pub(crate) method: http::Method,
    pub(crate) path: PathAndQuery,
    pub(crate) is_h2: bool,
    pub(crate) headers: HeaderMap,
}

impl Head {
    /// The head of the copies of `job`.
    pub(crate) fn new(job: &ShadowJob, parts: &CopiedParts) -> Self {
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

/// Why there is no copy of a client's body, as it is counted.
pub(crate) const fn reason(incomplete: Incomplete) -> ShadowDrop {
    match incomplete {
        Incomplete::TooLarge => ShadowDrop::TooLarge,
        Incomplete::BudgetSpent => ShadowDrop::BudgetSpent,
        Incomplete::Aborted => ShadowDrop::Cut,
    }
}
