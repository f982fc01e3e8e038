//! What is observed of one request's bodies: the reader of their content, the look for an error, and the first byte of a stream.

use bytes::Bytes;
use http::HeaderMap;

use super::answer_errors::AnswerErrors;
use super::body_reader::BodyReader;
use super::first_byte::FirstByte;
use super::observer::FencedObserver;
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::ExchangeReader;

/// What observes the bodies of one request.
#[derive(Debug, Default)]
pub(crate) struct BodyObservation {
    reader: Option<BodyReader>,
    errors: AnswerErrors,
    first_byte: FirstByte,
}

impl BodyObservation {
    /// Begins to observe the bodies of a POST, or of another request.
    pub(crate) fn begin(&mut self, is_post: bool) {
        self.errors = AnswerErrors::to(is_post);
    }

    /// Reads with `reader` from now on.
    pub(crate) fn read_with(&mut self, reader: Option<ExchangeReader>) {
        self.reader = reader.map(BodyReader::new);
    }

    /// Calls the reader. A panic is caught and counted; a reader that panicked is not called again. Returns whether pieces wait to be read;
    /// `None` if there is no reader.
    pub(crate) fn with_reader(&mut self, observer: &FencedObserver, read: impl FnOnce(&mut BodyReader)) -> Option<bool> {
        let reader = self.reader.as_mut()?;
        let mut is_sound = false;
        observer.call(Counter::ObserverPanics, |_| {
            read(reader);
            is_sound = true;
        });
        let is_behind = is_sound && reader.is_behind();
        if !is_sound {
            self.reader = None;
        }
        Some(is_behind)
    }

    /// The head of the response was read. Returns what [`Self::with_reader`] does.
    pub(crate) fn on_response_head(
        &mut self,
        observer: &FencedObserver,
        counters: &Counters,
        head: (u16, &HeaderMap, &[u8]),
    ) -> Option<bool> {
        let (status, headers, content_type) = head;
        let behind = self.with_reader(observer, |reader| count_refused(counters, reader.read_response_head(status, headers)));
        self.first_byte.on_head(headers, content_type);
        let Self { errors, reader, .. } = self;
        observer.call(Counter::ObserverPanics, |observer| errors.on_head(observer, reader, head));
        behind
    }

    /// A piece of the response, read from the upstream at `at`, goes to the client. Returns what [`Self::with_reader`] does.
    pub(crate) fn on_response_piece(
        &mut self,
        observer: &FencedObserver,
        ledger: &Ledger,
        bytes: &Bytes,
        at: Stamp,
    ) -> Option<bool> {
        self.first_byte.on_piece(bytes, at.since(ledger.started));
        if self.errors.wants_piece() {
            let Self { errors, reader, .. } = self;
            let times = (at, ledger.started);
            observer.call(Counter::ObserverPanics, |observer| errors.on_piece(observer, reader, bytes, times));
        }
        self.with_reader(observer, |reader| reader.push_response(bytes, at, ledger.started))
    }

    /// The first byte of a stream, in nanoseconds from the request's start; zero if the response is none.
    pub(crate) const fn first_byte_ns(&self) -> u64 {
        self.first_byte.of_stream_ns()
    }

    /// Reads the rest and writes the findings into `ledger`.
    pub(crate) fn close(&mut self, observer: &FencedObserver, counters: &Counters, ledger: &mut Ledger) {
        let Some(reader) = self.reader.take() else { return };
        observer.call(Counter::ObserverPanics, |observer| {
            let unread = reader.close(ledger, |ledger, model| observer.model(model, ledger));
            unread.into_iter().flatten().for_each(|counter| counters.bump(counter));
        });
    }
}

/// Counts fields with reports that could not be read.
pub(crate) fn count_refused(counters: &Counters, n: usize) {
    if n > 0 {
        counters.add(Counter::ReportsMalformed, n as u64);
    }
}
