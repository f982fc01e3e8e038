//! When passing bytes are read: after they have been handed on. What passes is kept for a moment, by reference, and
//! read when the connection has nothing better to do, or when more comes than may wait.

use bytes::Bytes;
use http::HeaderMap;
use smallvec::SmallVec;

use crate::ledger::{Ledger, Stamp};
use crate::protocol::ExchangeReader;

/// Bytes that may wait to be read, in each exchange; one piece may be larger.
const WAITING_BYTES: usize = 64 * 1024;
/// Pieces that may.
const WAITING_PIECES: usize = 64;

/// The reader of one exchange, and what it has not read yet.
#[derive(Debug)]
pub(crate) struct Reading {
    tap: ExchangeReader,
    waiting: SmallVec<[Piece; 2]>,
    bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Request(Bytes),
    Response(Bytes, u64),
}

impl Reading {
    /// Reads by `tap`.
    pub(crate) fn new(tap: ExchangeReader) -> Self {
        Self { tap, waiting: SmallVec::new(), bytes: 0 }
    }

    /// Some of the request passed.
    pub(crate) fn request(&mut self, bytes: &Bytes) {
        if self.tap.wants_request() {
            self.keep(bytes.len(), Piece::Request(bytes.clone()));
        }
    }

    /// The response's head came.
    pub(crate) fn head(&mut self, status: u16, headers: &HeaderMap) {
        self.tap.response_head(status, headers);
    }

    /// Some of the response passed; it was read `at`, the exchange began at `started`.
    pub(crate) fn response(&mut self, bytes: &Bytes, at: Stamp, started: Stamp) {
        if self.tap.wants_response() {
            self.keep(bytes.len(), Piece::Response(bytes.clone(), at.since(started)));
        }
    }

    fn keep(&mut self, length: usize, piece: Piece) {
        if length == 0 {
            return;
        }
        if self.bytes + length > WAITING_BYTES || self.waiting.len() == WAITING_PIECES {
            self.read(); // what has been handed on before, never what is about to be
        }
        self.waiting.push(piece);
        self.bytes += length;
    }

    /// Whether anything waits.
    pub(crate) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads what waits.
    pub(crate) fn read(&mut self) {
        for piece in self.waiting.drain(..) {
            match piece {
                Piece::Request(bytes) => self.tap.request(&bytes),
                Piece::Response(bytes, at_ns) => self.tap.response(&bytes, at_ns),
            }
        }
        self.bytes = 0;
    }

    /// Reads the rest; whether the answer says of itself that it is whole.
    pub(crate) fn is_complete(&mut self) -> bool {
        self.read();
        self.tap.is_complete()
    }

    /// Reads the rest, and writes what was found into the ledger; `model` is given the model's name, if there is one.
    pub(crate) fn close(mut self, ledger: &mut Ledger, model: impl FnOnce(&mut Ledger, &str)) {
        self.read();
        if let Some(named) = self.tap.close(ledger) {
            model(ledger, named);
        }
    }
}
