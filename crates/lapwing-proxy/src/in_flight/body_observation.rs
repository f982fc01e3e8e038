//! What is observed of one request's bodies: the reader of their content, the look for an error, and the first byte of a stream.
//!
//! Bodies are read after they have been handed on. Pieces that pass are kept by reference for a moment, and are read when the
//! connection has nothing better to do, or when more arrives than may wait.
//!
//! An error is looked for in answers, beside what else is read of them: of any route, also of those that are no known protocol. A stream
//! is read; of a JSON document of which nothing else is read, the first bytes are looked at as they pass, and only one that may
//! be an error is read. On routes that are no known protocol, documents and lines are looked at in answers to POST only, because an
//! answer to GET may well *describe* an error: that of a job that failed. Events are looked at in all answers.

use bytes::Bytes;
use http::HeaderMap;
use smallvec::SmallVec;

use super::first_byte::FirstByte;
use super::observer::{FencedObserver, Observer};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::{ErrorPlace, ExchangeReader, Glance, UnreadBody};

/// How many bytes of an exchange may wait to be read; one piece may be larger.
const MAX_WAITING_BYTES: usize = 64 * 1024;
/// How many pieces of an exchange may wait to be read.
const MAX_WAITING_PIECES: usize = 64;
/// The type of events.
const EVENTS: &[u8] = b"text/event-stream";

/// What observes the bodies of one request.
#[derive(Debug, Default)]
pub(crate) struct BodyObservation {
    reader: Option<BodyReader>,
    errors: AnswerErrors,
    first_byte: FirstByte,
    /// The answer is none to this request alone: nothing of it is read.
    ignores_answer: bool,
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

    /// Nothing of the answer is read.
    pub(crate) const fn ignore_answer(&mut self) {
        self.ignores_answer = true;
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
        if self.ignores_answer {
            return None;
        }
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

/// The reader of one exchange's bodies, and the pieces that it has not read yet.
#[derive(Debug)]
pub(crate) struct BodyReader {
    reader: ExchangeReader,
    waiting: SmallVec<[Piece; 2]>,
    bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Request(Bytes),
    Response(Bytes, u64),
}

impl BodyReader {
    /// Reads with `reader`.
    pub(crate) fn new(reader: ExchangeReader) -> Self {
        Self { reader, waiting: SmallVec::new(), bytes: 0 }
    }

    /// A piece of the request passes.
    pub(crate) fn push_request(&mut self, bytes: &Bytes) {
        if self.reader.wants_request() {
            self.queue_piece(bytes.len(), Piece::Request(bytes.clone()));
        }
    }

    /// Reads the response's head. Returns how many fields were refused.
    pub(crate) fn read_response_head(&mut self, status: u16, headers: &HeaderMap) -> usize {
        self.reader.response_head(status, headers)
    }

    /// Reads the response's trailers. Returns how many fields were refused.
    pub(crate) fn read_trailers(&mut self, trailers: &HeaderMap) -> usize {
        self.reader.response_trailers(trailers)
    }

    /// Whether the response's head came and nothing of its body is read.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.reader.reads_nothing()
    }

    /// Reads the response, which is a stream with this head, for an error too.
    pub(crate) fn read_stream_errors(&mut self, headers: &HeaderMap) {
        self.reader.read_stream_errors(headers);
    }

    /// Reads the response, of which nothing was read, for an error from the next piece on.
    pub(crate) fn read_document_errors(&mut self) {
        self.reader.read_document_errors();
    }

    /// A piece of the response passes. It was read at `at`; the exchange began at `started`.
    pub(crate) fn push_response(&mut self, bytes: &Bytes, at: Stamp, started: Stamp) {
        if self.reader.wants_response() {
            self.queue_piece(bytes.len(), Piece::Response(bytes.clone(), at.since(started)));
        }
    }

    fn queue_piece(&mut self, length: usize, piece: Piece) {
        if length == 0 {
            return;
        }
        if self.bytes + length > MAX_WAITING_BYTES || self.waiting.len() == MAX_WAITING_PIECES {
            self.read(); // the pieces handed on before, never the one about to be
        }
        self.waiting.push(piece);
        self.bytes += length;
    }

    /// Returns whether any piece waits to be read.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads the pieces that wait.
    pub(crate) fn read(&mut self) {
        for piece in self.waiting.drain(..) {
            match piece {
                Piece::Request(bytes) => self.reader.request(&bytes),
                Piece::Response(bytes, at_ns) => self.reader.response(&bytes, at_ns),
            }
        }
        self.bytes = 0;
    }

    /// The reader, after it has read the pieces that wait.
    pub(crate) fn up_to_date(&mut self) -> &mut ExchangeReader {
        self.read();
        &mut self.reader
    }

    /// Reads the rest. Returns whether the response is complete by its own end mark.
    pub(crate) fn is_complete(&mut self) -> bool {
        self.read();
        self.reader.is_complete()
    }

    /// Reads the rest and writes the findings into the ledger. Calls `model` with the model's name, if the bodies name one. Returns
    /// the counters of bodies that were not read, and of a parameter of the request.
    pub(crate) fn close(mut self, ledger: &mut Ledger, model: impl FnOnce(&mut Ledger, &str)) -> [Option<Counter>; 3] {
        self.read();
        let [request, response] = self.reader.unread().map(|why| why.map(unread_counter));
        let timeout = self.reader.has_malformed_timeout().then_some(Counter::DeadlinesMalformedParameter);
        if let Some(named) = self.reader.close(ledger) {
            model(ledger, named);
        }
        [request, response, timeout]
    }
}

const fn unread_counter(why: UnreadBody) -> Counter {
    match why {
        UnreadBody::Coding => Counter::BodiesUnreadCoding,
        UnreadBody::Corrupt => Counter::BodiesUnreadCorrupt,
        UnreadBody::TooLarge => Counter::BodiesUnreadTooLarge,
        UnreadBody::Memory => Counter::BodiesUnreadMemory,
    }
}

/// The look for an error in one answer.
#[derive(Debug, Default)]
struct AnswerErrors {
    /// Whether the request is a POST.
    is_post: bool,
    glance: Glance,
}

impl AnswerErrors {
    /// In the answer to a request that is a POST, or not.
    const fn to(is_post: bool) -> Self {
        Self { is_post, glance: Glance::Off }
    }

    /// The head of an answer has come, and `reader` has read it. Opens a reader if the answer is a stream and there is none.
    fn on_head(
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
    const fn wants_piece(&self) -> bool {
        self.glance.is_on()
    }

    /// A piece of the answer passes, read at `at`. Has `reader` read the answer, up to this piece, if it may be an error.
    fn on_piece(
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
