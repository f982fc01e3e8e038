//! The layer and its service: opens a ledger when the request is called.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::ResponseBody;
use crate::body::RequestBody;
use crate::future::ResponseFuture;
use crate::in_handler::{ClosingGuard, InHandler, ledger_of};
use crate::recorder::ServerRecorder;
use crate::recording::Recording;
use crate::stages::RequestStages;
use lapwing_ledger::{Stamp, fold_path, label_text};

type RouteFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Applies [`LedgerService`]. Put it outside all layers whose time is to be counted.
#[derive(Clone)]
pub struct LedgerLayer {
    recording: Arc<Recording>,
    has_server_timing: bool,
    route: Option<Arc<RouteFn>>,
}

impl LedgerLayer {
    /// A layer whose ledgers go to `recorder`.
    #[must_use]
    pub fn new(recorder: &ServerRecorder) -> Self {
        Self { recording: recorder.recording(), has_server_timing: false, route: None }
    }

    /// Says in the response's head, as `Server-Timing`, how long each stage took that ended before it.
    #[must_use]
    pub fn with_server_timing(self) -> Self {
        Self { has_server_timing: true, ..self }
    }

    /// Names the route of a request whose framework knows it, such as axum by `MatchedPath`; `None` leaves the folded path.
    #[must_use]
    pub fn with_route(self, route: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { route: Some(Arc::new(route)), ..self }
    }
}

impl fmt::Debug for LedgerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerLayer").field("has_server_timing", &self.has_server_timing).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for LedgerLayer {
    type Service = LedgerService<S>;

    fn layer(&self, inner: S) -> LedgerService<S> {
        LedgerService { inner, layer: self.clone() }
    }
}

/// Keeps the ledger of each request, and hands the request to `S` with [`RequestStages`] as an extension.
#[derive(Clone, Debug)]
pub struct LedgerService<S> {
    inner: S,
    layer: LedgerLayer,
}

impl<S, B, R> Service<Request<B>> for LedgerService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    B: Body,
    R: Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let called = Stamp::now();
        let LedgerLayer { recording, has_server_timing, route } = &self.layer;
        let (mut parts, body) = request.into_parts();
        let mut ledger = ledger_of(&parts.headers, called);
        let folded = fold_path(parts.method.as_str(), parts.uri.path(), false);
        let named = route.as_ref().and_then(|route| route(&parts));
        let name = named.as_deref().map_or(Cow::Borrowed(folded.name.as_str()), label_text);
        recording.name_series(&mut ledger, &name, folded.model.map(label_text).as_deref());
        let exchange = InHandler::open(recording.clone(), ledger, body.is_end_stream());
        let mut guard = ClosingGuard::new(exchange.clone());
        let is_head = parts.method == Method::HEAD;
        parts.extensions.insert(RequestStages::of(exchange.clone()));
        guard.is_running = true; // a service may panic before it returns its future
        let answer = self.inner.call(Request::from_parts(parts, RequestBody::new(body, exchange)));
        guard.is_running = false;
        ResponseFuture::new(answer, guard, *has_server_timing, is_head)
    }
}
