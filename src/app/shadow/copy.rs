//! Makes the copy of a request: which headers go with it, and what marks it as a copy.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONNECTION, COOKIE, EXPECT, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::protocol::trace_context;
use crate::proxy::{CapturedBody, PAIR_FIELD, ReplayBody, ShadowJob};
use crate::shadow::{Config, CopiedHeader, SHADOW_FIELD};

/// What is about the original's connection, and never in a copy, as is what is about its trace. `te` stays for gRPC.
const NEVER: [HeaderName; 4] = [CONNECTION, EXPECT, TRANSFER_ENCODING, UPGRADE];
/// Left out unless the configuration keeps them.
const SECRETS: [HeaderName; 3] = [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION];

/// The headers of copies.
#[derive(Debug)]
pub(in crate::app) struct CopiedHeaders(Vec<HeaderName>);

impl CopiedHeaders {
    pub(in crate::app) fn new(config: &Config) -> Self {
        let is = |name: &HeaderName, what| {
            config.headers.iter().any(|(key, value)| *value == what && key.eq_ignore_ascii_case(name.as_str()))
        };
        let secrets = SECRETS.into_iter().filter(|name| !is(name, CopiedHeader::Keep));
        let removed = config.headers.iter().filter(|(_, what)| **what == CopiedHeader::Remove);
        let removed = removed.filter_map(|(name, _)| HeaderName::try_from(name.as_str()).ok());
        Self(NEVER.into_iter().chain(trace_context::FIELDS).chain(secrets).chain(removed).collect())
    }

    /// The headers of the copies of a request with `headers`.
    pub(in crate::app) fn of(&self, headers: &HeaderMap) -> HeaderMap {
        let mut copied = headers.clone();
        for name in &self.0 {
            copied.remove(name);
        }
        if copied.get(TE).is_some_and(|te| te != "trailers") {
            copied.remove(TE);
        }
        copied.insert(SHADOW_FIELD, HeaderValue::from_static("1"));
        copied
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
    pub(in crate::app) path: http::uri::PathAndQuery,
    pub(in crate::app) is_h2: bool,
    pub(in crate::app) headers: HeaderMap,
}

impl Head {
    /// The head of the copies of `job`.
    pub(super) fn new(job: &ShadowJob, headers: &CopiedHeaders) -> Self {
        let is_h2 = job.version == http::Version::HTTP_2;
        Self {
            pair: job.pair,
            cause: job.cause,
            method: job.method.clone(),
            path: job.path.clone(),
            is_h2,
            headers: headers.of(&job.headers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn secrets_stay_here_unless_they_are_kept() {
        let given = headers(&[
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("x-tenant", "t"),
            ("content-type", "application/json"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("te", "gzip"),
        ]);
        let copied = CopiedHeaders::new(&Config::default()).of(&given);
        assert_eq!(copied, headers(&[("x-tenant", "t"), ("content-type", "application/json"), ("x-lapwing-shadow", "1")]));
        let config = Config {
            headers: [("Authorization".to_owned(), CopiedHeader::Keep), ("x-tenant".to_owned(), CopiedHeader::Remove)].into(),
            ..Config::default()
        };
        let copied = CopiedHeaders::new(&config).of(&given);
        assert_eq!(
            copied,
            headers(&[("authorization", "Bearer x"), ("content-type", "application/json"), ("x-lapwing-shadow", "1")])
        );
    }
}
