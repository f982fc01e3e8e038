//! A piece of a response's body on its way to the client. It costs no allocation and copies nothing.
//!
//! Where responses share a connection (HTTP/2), a flush says nothing about one of them: flow control may hold its last
//! bytes for as long as the client likes. There, each piece reports when hyper drops it, and whether the socket took its
//! last byte or a buffer did, which the next flush empties.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::in_flight::InFlight;

/// A piece of a response's body.
#[derive(Debug)]
pub(crate) struct TrackedChunk {
    bytes: Bytes,
    /// The request that it reports to: only over HTTP/2.
    in_flight: Option<Arc<InFlight>>,
    /// Its last byte was taken by the socket, not copied into a buffer.
    is_written: bool,
}

impl TrackedChunk {
    /// A piece of the response to `in_flight`.
    pub(crate) fn new(bytes: Bytes, in_flight: Option<&Arc<InFlight>>) -> Self {
        let reported_to = in_flight.filter(|in_flight| in_flight.is_multiplexed && !bytes.is_empty());
        Self { bytes, in_flight: reported_to.map(InFlight::hold_piece), is_written: false }
    }
}

impl Buf for TrackedChunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(slices)
    }

    fn advance(&mut self, n: usize) {
        self.bytes.advance(n);
        if let Some(in_flight) = &self.in_flight {
            self.is_written = self.bytes.is_empty() && in_flight.meter.is_writing();
        }
    }
}

impl Drop for TrackedChunk {
    fn drop(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.release_piece(self.bytes.is_empty(), self.is_written);
        }
    }
}
