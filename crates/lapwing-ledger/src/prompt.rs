//! Request bodies that are kept so that their tokens can be counted later, off the request path, and the memory budget that they
//! share. Nothing here reads a body; the indices in [`Prompt`] have a meaning for its reader only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The memory budget that kept bodies share, in bytes of content.
#[derive(Clone, Debug)]
pub struct PromptBudget(Arc<AtomicUsize>);

impl PromptBudget {
    /// A budget of `bytes`.
    #[must_use]
    #[inline]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Bytes that are free.
    #[must_use]
    #[inline]
    pub fn free(&self) -> usize {
        self.0.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).is_ok()
    }
}

/// A body, as far as it was received. Dropping it returns its bytes to the budget.
#[derive(Debug)]
pub struct PromptBody {
    bytes: Vec<u8>,
    room: PromptBudget,
}

impl PromptBody {
    /// The longest body that is kept: 256 KiB.
    pub const MAX: usize = 256 * 1024;

    /// An empty body.
    #[must_use]
    #[inline]
    pub fn new(room: &PromptBudget) -> Self {
        Self { bytes: Vec::new(), room: room.clone() }
    }

    /// Appends a piece. Returns false and appends nothing if the body would exceed [`Self::MAX`] or the budget; the body is then
    /// incomplete and useless.
    #[must_use]
    #[inline]
    pub fn push(&mut self, piece: &[u8]) -> bool {
        let fits = self.bytes.len() + piece.len() <= Self::MAX && self.room.take(piece.len());
        if fits {
            self.bytes.extend_from_slice(piece);
        }
        fits
    }

    /// The bytes received so far.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PromptBody {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes.len(), Relaxed);
    }
}

/// A body whose tokens are to be counted, with what its reader knows about it.
#[derive(Debug)]
pub struct Prompt {
    /// The body.
    pub body: PromptBody,
    /// Which table entry says where its texts are.
    pub texts: u16,
    /// Which tokenizer to use.
    pub tokenizer: u16,
    /// Which entry of the model costs applies, if one does.
    pub cost: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_their_room_and_give_it_back() {
        let room = PromptBudget::new(10);
        let mut one = PromptBody::new(&room);
        assert!(one.push(b"123456"));
        let mut other = PromptBody::new(&room);
        assert!(!other.push(b"12345"));
        assert!(other.push(b"1234"));
        assert_eq!((one.bytes(), other.bytes(), room.free()), (&b"123456"[..], &b"1234"[..], 0));
        drop((one, other));
        assert_eq!(room.free(), 10);
    }

    #[test]
    fn a_body_is_bounded_to_the_byte() {
        let mut body = PromptBody::new(&PromptBudget::new(usize::MAX / 2));
        assert!(body.push(&vec![b'a'; PromptBody::MAX - 1]));
        assert!(!body.push(b"bc"));
        assert!(body.push(b"b"));
        assert!(!body.push(b"c"));
    }
}
