//! How much memory all decoders of passing bodies may hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A budget in bytes, shared by the decoders of a process. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct DecoderMemory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    used: AtomicUsize,
    limit: usize,
}

/// What one decoder holds of the budget. Dropped, it gives it back.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    memory: DecoderMemory,
    held: usize,
}

impl DecoderMemory {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Pool { used: AtomicUsize::new(0), limit }))
    }

    /// How many bytes the decoders hold.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Relaxed)
    }

    /// A share of nothing yet.
    pub(crate) fn share(&self) -> MemoryShare {
        MemoryShare { memory: self.clone(), held: 0 }
    }
}

impl MemoryShare {
    /// Grows the share to `held` bytes. Returns whether they were left; if not, the share is as before.
    pub(crate) fn grow_to(&mut self, held: usize) -> bool {
        let more = held.saturating_sub(self.held);
        if more == 0 {
            return true;
        }
        let Pool { used, limit } = &*self.memory.0;
        let before = used.fetch_add(more, Relaxed);
        if before.saturating_add(more) > *limit {
            used.fetch_sub(more, Relaxed);
            return false;
        }
        self.held = held;
        true
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.held, Relaxed);
    }
}
