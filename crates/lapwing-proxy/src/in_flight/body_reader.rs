//! Reads bodies after they have been handed on. Pieces that pass are kept by reference for a moment, and are read when the
//! connection has nothing better to do, or when more arrives than may wait.

use bytes::Bytes;
use http::HeaderMap;
use smallvec::SmallVec;

use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::Counter;
use lapwing_protocol::{ExchangeReader, UnreadBody};

/// How many bytes of an exchange may wait to be read; one piece may be larger.
const MAX_WAITING_BYTES: usize = 64 * 1024;
/// How many pieces of an exchange may wait to be read.
const MAX_WAITING_PIECES: usize = 64;

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

    /// Reads the rest. Returns whether the response is complete by its own end mark.
    pub(crate) fn is_complete(&mut self) -> bool {
        self.read();
        self.reader.is_complete()
    }

    /// Reads the rest and writes the findings into the ledger. Calls `model` with the model's name, if the bodies name one. Returns
    /// the counters of bodies that were not read.
    pub(crate) fn close(mut self, ledger: &mut Ledger, model: impl FnOnce(&mut Ledger, &str)) -> [Option<Counter>; 2] {
        self.read();
        let unread = self.reader.unread().map(|why| why.map(unread_counter));
        if let Some(named) = self.reader.close(ledger) {
            model(ledger, named);
        }
        unread
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
