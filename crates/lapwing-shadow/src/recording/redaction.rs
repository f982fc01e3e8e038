//! One record: a request and its answer, without secrets, as they are written.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method, StatusCode, Version};

use super::exchange::{RecordedAnswer, RecordedExchange};
use crate::counters::ShadowDrop;
use crate::kept::CopiedParts;
use crate::pairs::SideAccount;
use crate::repeatable::{AnsweredExchange, JudgedRequest, Repeatable, Standing};
use crate::settings::ShadowSettings;
use crate::tap::ShadowJob;
use lapwing_compare::outputs::Redactor;
use lapwing_ledger::{PairId, Stamp};
use lapwing_proxy::{CapturedAnswer, CapturedBody, CapturedExchange};

/// The header fields of an answer that say how its body is to be read. No other is recorded.
const ANSWER_FIELDS: [HeaderName; 4] = [
    CONTENT_TYPE,
    CONTENT_ENCODING,
    HeaderName::from_static("inference-header-content-length"),
    HeaderName::from_static("grpc-encoding"),
];

/// A request and its answer, both complete.
#[derive(Debug)]
pub(crate) struct CompleteJob {
    pub(crate) pair: PairId,
    arrived: Stamp,
    method: Method,
    path: http::uri::PathAndQuery,
    version: Version,
    headers: HeaderMap,
    body: CapturedBody,
    status: StatusCode,
    answer_headers: HeaderMap,
    answer: CapturedBody,
}

impl CompleteJob {
    /// Waits until both bodies are complete.
    ///
    /// # Errors
    ///
    /// Why there is no copy of one of them.
    pub(crate) async fn of(job: ShadowJob) -> Result<Self, ShadowDrop> {
        let pair = job.pair;
        let CapturedExchange { arrived, method, path, version, headers, body, answer } = job.exchange;
        let body = body.await.map_err(ShadowDrop::from)?;
        let CapturedAnswer { status, headers: answer_headers, body: answer, .. } = answer.await.map_err(|_| ShadowDrop::Cut)?;
        let answer = answer.await.map_err(ShadowDrop::from)?;
        Ok(Self { pair, arrived, method, path, version, headers, body, status, answer_headers, answer })
    }

    /// Whether it may be recorded now, or once its route is learnt.
    ///
    /// # Errors
    ///
    /// Why it may not be.
    pub(crate) fn judge(&self, repeatable: &Repeatable) -> Result<(JudgedRequest, Standing), ShadowDrop> {
        let request = repeatable.request(&self.method, self.path.path(), &self.headers, self.body.pieces());
        let (trailers, body) = (self.answer.trailers(), self.answer.pieces());
        let answer = AnsweredExchange { status: self.status, headers: &self.answer_headers, trailers, body };
        let standing = repeatable.answered(&request, &answer)?;
        Ok((request, standing))
    }
}

/// What is left out of records.
#[derive(Debug)]
pub(crate) struct Redaction {
    copied: CopiedParts,
    bodies: Redactor,
}

impl Redaction {
    /// By `settings`.
    pub(crate) fn new(settings: &ShadowSettings) -> Self {
        let ShadowSettings { shadow, protocol, .. } = settings;
        Self { copied: CopiedParts::new(shadow, protocol), bodies: Redactor::new(&shadow.compare) }
    }

    /// The record of `job` in a recording that began at `began`. `None` if there are values to hide and the request's body is none in
    /// which they can be found and replaced. An answer of which that holds is left out.
    pub(crate) fn record(&self, job: &CompleteJob, account: Option<SideAccount>, began: Stamp) -> Option<RecordedExchange> {
        let mut headers = self.copied.headers.of(&job.headers);
        headers.remove(CONTENT_LENGTH);
        let answer = self.body(&job.answer_headers, &job.answer).map(|body| RecordedAnswer {
            status: job.status.as_u16(),
            headers: ANSWER_FIELDS
                .iter()
                .filter_map(|name| Some((name.clone(), job.answer_headers.get(name)?.clone())))
                .collect(),
            grpc_status: job.answer.grpc_status(&job.answer_headers),
            body,
        });
        Some(RecordedExchange {
            at_ns: job.arrived.since(began),
            method: job.method.clone(),
            path: self.copied.path(&job.path),
            http2: job.version == Version::HTTP_2,
            headers,
            body: self.body(&job.headers, &job.body)?,
            answer,
            account,
        })
    }

    /// A body without secrets, of a message with these headers.
    fn body(&self, headers: &HeaderMap, body: &CapturedBody) -> Option<Bytes> {
        let whole = match body.pieces() {
            [] => Bytes::new(),
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        };
        let whole = self.copied.secrets.hidden(headers, whole).ok()?;
        if self.bodies.is_idle() || whole.is_empty() { Some(whole) } else { self.bodies.redacted(&whole).map(Bytes::from) }
    }
}
