//! A request that can be sent again: while it is not known yet whether the upstream speaks HTTP/1.1 at all, the first requests are kept as far
//! as they are small. What was sent to a server that could not read it had no effect.

use http::Request;

use super::request::{RequestBody, ReturnSlot, ReturnedBody};

/// The head of a request, and the place where its body returns when whoever had it lets it go.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    head: Request<()>,
    body: ReturnSlot,
}

impl KeptRequest {
    /// Keeps `request`, except for its extensions.
    pub(crate) fn of(request: &mut Request<RequestBody>) -> Self {
        let mut head = Request::new(());
        *head.method_mut() = request.method().clone();
        *head.uri_mut() = request.uri().clone();
        *head.version_mut() = request.version();
        head.headers_mut().clone_from(request.headers());
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
