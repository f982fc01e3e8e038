//! The memory that all request bodies together may take, from their first byte until the last tensor that shares it is dropped.
//! Sizes are bytes. Nothing waits for room: a body that finds none is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use super::error::RequestError;

/// How much memory bodies may take, and how much they take.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    limit: usize,
    used: AtomicUsize,
}

impl BodyBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// What bodies take now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// A share of nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> BodyShare {
        BodyShare { budget: Arc::clone(self), bytes: 0 }
    }
}

/// The share of one body, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl BodyShare {
    /// Makes it a share of at least `bytes`.
    ///
    /// # Errors
    ///
    /// [`RequestError::NoRoom`] if all shares would be more than the budget; this one is as it was.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), RequestError> {
        let more = bytes.saturating_sub(self.bytes);
        let limit = self.budget.limit;
        if more == 0 {
            return Ok(());
        }
        let room = |used: usize| used.checked_add(more).filter(|used| *used <= limit);
        self.budget.used.fetch_update(Relaxed, Relaxed, room).map_err(|_| self.no_room())?;
        self.bytes += more;
        Ok(())
    }

    /// The error of a body for which there is no memory.
    pub(crate) fn no_room(&self) -> RequestError {
        RequestError::NoRoom { limit: self.budget.limit }
    }

    /// Gives back what is beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.budget.used.fetch_sub(less, Relaxed);
        self.bytes -= less;
    }

    /// A share of nothing, of the same budget.
    pub(crate) fn another(&self) -> Self {
        self.budget.share()
    }

    /// `body`, which holds the share until the last reference to it is dropped.
    pub(crate) fn held_by(self, body: Bytes) -> Bytes {
        Bytes::from_owner(SharedBody { body, _share: self })
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

struct SharedBody {
    body: Bytes,
    _share: BodyShare,
}

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back_with_the_last_reference() {
        let budget = BodyBudget::new(100);
        let (mut one, mut two) = (budget.share(), budget.share());
        one.grow_to(60).unwrap();
        one.grow_to(50).unwrap();
        assert!(matches!(two.grow_to(41), Err(RequestError::NoRoom { limit: 100 })));
        two.grow_to(40).unwrap();
        assert_eq!(budget.used(), 100);
        two.shrink_to(10);
        let body = one.held_by(Bytes::from_static(b"tensor"));
        let part = body.slice(2..4);
        drop((body, two));
        assert_eq!((&part[..], budget.used()), (&b"ns"[..], 60));
        drop(part);
        assert_eq!(budget.used(), 0);
    }
}
