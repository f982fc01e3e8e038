//! Looks for an error in answers, beside what else is read of them: of any route, also of those that are no known protocol. A stream
//! is read; of a JSON document of which nothing else is read, the first bytes are looked at as they pass, and only one that may
//! be an error is read.
//!
//! On routes that are no known protocol, documents and lines are looked at in answers to POST only, because an answer to GET may well
//! *describe* an error: that of a job that failed. Events are looked at in all answers.

use bytes::Bytes;
use http::HeaderMap;

use super::body_reader::BodyReader;
use super::observer::Observer;
use lapwing_ledger::Stamp;
use lapwing_protocol::{ErrorPlace, Glance};

/// The type of events.
const EVENTS: &[u8] = b"text/event-stream";

/// The look for an error in one answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerErrors {
    /// Whether the request is a POST.
    is_post: bool,
    glance: Glance,
}

impl AnswerErrors {
    /// In the answer to a request that is a POST, or not.
    pub(crate) const fn to(is_post: bool) -> Self {
        Self { is_post, glance: Glance::Off }
    }

    /// The head of an answer has come, and `reader` has read it. Opens a reader if the answer is a stream and there is none.
    pub(crate) fn on_head(
        &mut self,
        observer: &dyn Observer,
        reader: &mut Option<BodyReader>,
        (status, headers, content_type): (u16, &HeaderMap, &[u8]),
    ) {
        self.glance = Glance::Off;
        let is_looked_at = self.is_post || reader.is_some() || content_type.starts_with(EVENTS);
        if !(200..300).contains(&status) || !is_looked_at {
            return;
        }
        match ErrorPlace::of(headers, content_type) {
            ErrorPlace::Nowhere => {}
            ErrorPlace::Document => {
                if reader.as_ref().is_none_or(BodyReader::reads_nothing) {
                    self.glance = Glance::on();
                }
            }
            ErrorPlace::Stream => {
                if reader.is_none() {
                    *reader = observer.error_reader().map(BodyReader::new);
                }
                if let Some(reader) = reader {
                    reader.read_stream_errors(headers);
                }
            }
        }
    }

    /// Whether the next piece is to be looked at.
    pub(crate) const fn wants_piece(&self) -> bool {
        self.glance.is_on()
    }

    /// A piece of the answer passes, read at `at`. Has `reader` read the answer, up to this piece, if it may be an error.
    pub(crate) fn on_piece(
        &mut self,
        observer: &dyn Observer,
        reader: &mut Option<BodyReader>,
        bytes: &Bytes,
        (at, started): (Stamp, Stamp),
    ) {
        let Some(before) = self.glance.feed(bytes) else { return };
        if reader.is_none() {
            *reader = observer.error_reader().map(BodyReader::new);
        }
        if let Some(reader) = reader {
            reader.read_document_errors();
            reader.push_response(&before.into(), at, started);
        }
    }
}
