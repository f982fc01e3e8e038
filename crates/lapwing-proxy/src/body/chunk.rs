//! A piece of a response's body on its way to the client. It costs no allocation and copies nothing.
//!
//! Where responses share a connection (HTTP/2), a flush says nothing about one of them: flow control may hold its last
//! bytes for as long as the client likes. There, each piece reports when hyper drops it, and whether the socket took its
//! last byte or a buffer did, which the next flush empties.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes};

/// Who is told what became of a response's pieces.
pub(crate) trait PieceOwner {
    /// Hyper is given a piece. The returned handle goes with it.
    fn hold_piece(self: &Arc<Self>) -> Arc<Self>;

    /// Hyper dropped a piece: `whole` if all of it was taken, and `written` if the socket took its last byte.
    fn release_piece(&self, whole: bool, written: bool);

    /// Whether the latest event on the client's socket is that it took bytes.
    fn is_writing(&self) -> bool;
}

/// A piece of a response's body.
#[derive(Debug)]
pub(crate) struct TrackedChunk<O: PieceOwner> {
    bytes: Bytes,
    /// Who it reports to: only over HTTP/2.
    owner: Option<Arc<O>>,
    /// Its last byte was taken by the socket, not copied into a buffer.
    is_written: bool,
}

impl<O: PieceOwner> TrackedChunk<O> {
    /// A piece that reports to `owner`, if there is one.
    pub(crate) fn new(bytes: Bytes, owner: Option<&Arc<O>>) -> Self {
        let owner = owner.filter(|_| !bytes.is_empty()).map(O::hold_piece);
        Self { bytes, owner, is_written: false }
    }
}

impl<O: PieceOwner> Buf for TrackedChunk<O> {
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
        if let Some(owner) = &self.owner {
            self.is_written = self.bytes.is_empty() && owner.is_writing();
        }
    }
}

impl<O: PieceOwner> Drop for TrackedChunk<O> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.release_piece(self.bytes.is_empty(), self.is_written);
        }
    }
}
