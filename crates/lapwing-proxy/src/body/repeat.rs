//! A request that can be sent again: while it is not known yet whether the upstream speaks HTTP/1.1 at all, the first requests are kept as far
//! as they are small. What was sent to a server that could not read it had no effect.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use parking_lot::Mutex;

use super::request::RequestBody;

/// How many bytes of a body are kept.
const MAX_KEPT_BYTES: usize = 64 * 1024;

type Slot = Arc<Mutex<Option<RequestBody>>>;

/// The head of a request, and the place where its body returns when whoever had it lets it go.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    head: Request<()>,
    body: Slot,
}

impl KeptRequest {
    /// Keeps `request`, except for its extensions.
    pub(crate) fn of(request: &mut Request<RequestBody>) -> Self {
        let mut head = Request::new(());
        *head.method_mut() = request.method().clone();
        *head.uri_mut() = request.uri().clone();
        *head.version_mut() = request.version();
        head.headers_mut().clone_from(request.headers());
        let body = Slot::default();
        request.body_mut().return_to(ReturnedBody { passed: VecDeque::new(), bytes: 0, slot: body.clone() });
        Self { head, body }
    }

    /// The request as it was, if all that was sent of it was kept.
    pub(crate) fn take(self) -> Option<Request<RequestBody>> {
        let body = self.body.lock().take()?;
        Some(self.head.map(|()| body))
    }
}

/// What has passed of a body, and where the body returns.
#[derive(Debug)]
pub(crate) struct ReturnedBody {
    pub(crate) passed: VecDeque<Frame<Bytes>>,
    bytes: usize,
    slot: Slot,
}

impl ReturnedBody {
    /// A frame passes. Returns whether it could be kept.
    pub(crate) fn pass(&mut self, frame: &Frame<Bytes>) -> bool {
        let kept = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(bytes), _) => {
                self.bytes += bytes.len();
                Frame::data(bytes.clone())
            }
            (None, Some(trailers)) => Frame::trailers(trailers.clone()),
            (None, None) => return false,
        };
        self.passed.push_back(kept);
        self.bytes <= MAX_KEPT_BYTES
    }

    /// `body` begins anew.
    pub(crate) fn give_back(self, body: RequestBody) {
        *self.slot.lock() = Some(body);
    }
}
