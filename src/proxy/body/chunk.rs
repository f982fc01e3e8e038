//! A piece of a response's body on its way to the client. It costs no allocation, and copies nothing.
//!
//! Where several responses share a connection (HTTP/2), a flush says nothing of one of them: flow control may hold its
//! last bytes for as long as the client likes. There each piece tells when hyper has let go of it, and whether the
//! socket took its last byte or a buffer, which the next flush empties.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::proxy::exchange::in_flight::Live;

/// A piece of a body.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Bytes,
    /// Whom it tells.
    live: Option<Arc<Live>>,
    /// Its last byte was taken by the socket, not copied into a buffer.
    written: bool,
}

impl Chunk {
    /// A piece of the response of `live`, if of anybody's.
    pub(crate) fn new(bytes: Bytes, live: Option<&Arc<Live>>) -> Self {
        let told = live.filter(|live| live.multiplexed && !bytes.is_empty());
        Self { bytes, live: told.map(Live::hold), written: false }
    }
}

impl Buf for Chunk {
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
        if let Some(live) = &self.live {
            self.written = self.bytes.is_empty() && live.meter.is_writing();
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            live.let_go(self.bytes.is_empty(), self.written);
        }
    }
}
