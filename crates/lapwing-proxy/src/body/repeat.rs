//! A request that can be sent again: while it is not known yet whether the upstream speaks HTTP/1.1 at all, the first requests are kept as far
//! as they are small. What was sent to a server that could not read it had no effect. And one that is here whole, for a second upstream.

use bytes::Bytes;
use http::Request;

use super::request::{RequestBody, ReturnSlot, ReturnedBody};

/// What a second upstream is sent.
#[derive(Debug)]
pub(crate) struct SecondRequest {
    head: Request<()>,
    body: RequestBody,
}

impl SecondRequest {
    /// A copy of `request`, which is not sent yet; `None` if not all of it is here. Its pieces are shared, not copied.
    pub(crate) fn of(request: &Request<RequestBody>) -> Option<Self> {
        let body = request.body().copy()?;
        let mut head = head_of(request);
        // as their names were written, among others
        head.extensions_mut().clone_from(request.extensions());
        Some(Self { head, body })
    }

    /// Its head.
    pub(crate) const fn head(&self) -> &Request<()> {
        &self.head
    }

    /// The pieces of its body.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.body.ahead().cloned().collect()
    }

    /// The request.
    pub(crate) fn into_request(self) -> Request<RequestBody> {
        self.head.map(|()| self.body)
    }
}

/// The head of a request, without its extensions.
fn head_of(request: &Request<RequestBody>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    head.headers_mut().clone_from(request.headers());
    head
}

/// The head of a request, and the place where its body returns when whoever had it lets it go.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    head: Request<()>,
    body: ReturnSlot,
}

impl KeptRequest {
    /// Keeps `request`, except for its extensions.
    pub(crate) fn of(request: &mut Request<RequestBody>) -> Self {
        let head = head_of(request);
        let body = ReturnSlot::default();
        request.body_mut().return_to(ReturnedBody::new(body.clone()));
        Self { head, body }
    }

    /// The request as it was, if all that was sent of it was kept.
    pub(crate) fn take(self) -> Option<Request<RequestBody>> {
        let body = self.body.lock().take()?;
        Some(self.head.map(|()| body))
    }
}
