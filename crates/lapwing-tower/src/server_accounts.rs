//! The accounts of a server's requests: each opens when the layer is called, and ends with the response's body.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::Body;

use crate::account::{AccountGuard, AnswerAccount, OpenAccount, OpenedRequest, ResponseTerms};
use crate::body::{RequestBody, ResponseBody};
use crate::in_handler::InHandler;
use crate::recorder::ServerRecorder;
use crate::recording::Recording;
use crate::stages::RequestStages;
use lapwing_ledger::{Ledger, Outcome, SpanId, Stamp, TraceContext, TraceId, fold_path, label_text};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Names the route of a request by its head.
pub(crate) type RouteFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Opens the accounts of a server's requests.
#[derive(Clone)]
pub struct ServerAccounts {
    recording: Arc<Recording>,
    has_server_timing: bool,
    route: Option<Arc<RouteFn>>,
}

impl fmt::Debug for ServerAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerAccounts").field("has_server_timing", &self.has_server_timing).finish_non_exhaustive()
    }
}

impl ServerAccounts {
    /// Accounts whose ledgers go to `recorder`.
    #[must_use]
    pub fn new(recorder: &ServerRecorder) -> Self {
        Self { recording: recorder.recording(), has_server_timing: false, route: None }
    }

    pub(crate) fn with_server_timing(self) -> Self {
        Self { has_server_timing: true, ..self }
    }

    pub(crate) fn with_route(self, route: Arc<RouteFn>) -> Self {
        Self { route: Some(route), ..self }
    }
}

impl<B: Body> OpenAccount<B> for ServerAccounts {
    type Account = InHandler;
    type Request = Request<RequestBody<B>>;

    fn open(&self, request: Request<B>) -> OpenedRequest<Self::Request, InHandler> {
        let called = Stamp::now();
        let Self { recording, has_server_timing, route } = self;
        let (mut parts, body) = request.into_parts();
        let mut ledger = ledger_of(&parts.headers, called);
        let folded = fold_path(parts.method.as_str(), parts.uri.path(), false);
        let named = route.as_ref().and_then(|route| route(&parts));
        let name = named.as_deref().map_or(Cow::Borrowed(folded.name.as_str()), label_text);
        recording.name_series(&mut ledger, &name, folded.model.map(label_text).as_deref());
        let account = InHandler::open(recording.clone(), ledger, body.is_end_stream());
        let terms = ResponseTerms { is_head: parts.method == Method::HEAD, has_server_timing: *has_server_timing };
        parts.extensions.insert(RequestStages::of(account.clone()));
        OpenedRequest { request: Request::from_parts(parts, RequestBody::new(body, account.clone())), account, terms }
    }
}

impl<R: Body> AnswerAccount<R> for InHandler {
    type Body = ResponseBody<R>;

    fn on_answered(mut guard: AccountGuard<Self>, mut response: Response<R>, terms: ResponseTerms) -> Response<ResponseBody<R>> {
        let now = Stamp::now();
        if let Some(account) = guard.get() {
            account.on_head(&response, now);
            let timing = || account.server_timing(now).and_then(|text| HeaderValue::try_from(text).ok());
            if let Some(value) = terms.has_server_timing.then(timing).flatten() {
                response.headers_mut().append(SERVER_TIMING, value);
            }
        }
        if terms.has_no_body(response.status()) || response.body().is_end_stream() {
            guard.close(None, now);
        }
        response.map(|body| ResponseBody::new(body, guard, now))
    }

    fn on_failed(mut guard: AccountGuard<Self>) {
        guard.close(Some(Outcome::Broken), Stamp::now());
    }
}

/// An empty ledger of a request with this `traceparent`, whose span is a new one.
fn ledger_of(headers: &HeaderMap, called: Stamp) -> Box<Ledger> {
    let mut ledger = Box::new(Ledger::open(called, 0));
    let context = headers.get("traceparent").and_then(|field| TraceContext::parse(field.as_bytes()));
    ledger.span = SpanId::random();
    match context {
        Some(context) => (ledger.trace, ledger.parent) = (context.trace, context.span),
        None => ledger.trace = TraceId::random(),
    }
    ledger
}
