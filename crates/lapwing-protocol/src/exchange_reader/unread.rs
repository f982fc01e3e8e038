//! Which bodies of an exchange are not read, though their route is known, as the ledger notes it.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::passing_body::UnreadBody;
use lapwing_ledger::{Annotation, Ledger};

/// Which bodies are not read: because of their media type, or because they are compressed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnreadBodies {
    pub(crate) request: bool,
    pub(crate) response: bool,
    pub(crate) is_compressed: bool,
}

/// Whether a body that is not read could be: it is compressed, or text of some form. Images, sounds and the like are not.
pub(crate) fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let is_text = [&b"text/"[..], b"application/"].iter().any(|start| kind.starts_with(start));
    headers.contains_key(CONTENT_ENCODING) || is_text && !kind.starts_with(b"application/octet-stream")
}

impl UnreadBodies {
    /// With the bodies of which the coding could not be decoded: the request's and the response's.
    pub(crate) const fn undecoded(mut self, [request, response]: [Option<UnreadBody>; 2]) -> Self {
        self.request |= request.is_some();
        self.response |= response.is_some();
        self.is_compressed |= response.is_some();
        self
    }

    /// Notes it of an exchange with bodies of these lengths.
    pub(crate) fn note(self, ledger: &mut Ledger) {
        let annotations = &mut ledger.circumstances.annotations;
        if self.request && ledger.request_bytes > 0 {
            annotations.add(Annotation::UnreadRequest);
        }
        if self.response && ledger.response_bytes > 0 {
            annotations.add(Annotation::UnreadResponse);
            if self.is_compressed {
                annotations.add(Annotation::CompressedResponse);
            }
        }
    }
}
