//! The budget of captures: how many bytes each may keep alive, and all of the process together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bounds of captures, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct CaptureLimits {
    /// All captures of the process together.
    pub total: usize,
    /// The capture of one body.
    pub body: usize,
    /// The largest buffer that a piece of a body is cut out of, if the piece is not the whole of its allocation: see
    /// `Config::max_read_buffer`.
    pub read_buffer: usize,
}

/// Why there is no copy of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// It exceeds the budget of one body.
    #[error("the body exceeds the capture budget of one body")]
    TooLarge,
    /// It exceeds what was left of the shared budget.
    #[error("the shared capture budget is spent")]
    BudgetSpent,
    /// The body did not come to its end.
    #[error("the body was aborted")]
    Aborted,
}

/// The budget of all captures of a process.
#[derive(Debug)]
pub struct CaptureBudget {
    limits: CaptureLimits,
    used: Arc<AtomicUsize>,
}

impl CaptureBudget {
    /// A budget within `limits`, of which nothing is used.
    pub fn new(limits: CaptureLimits) -> Arc<Self> {
        Arc::new(Self { limits, used: Arc::default() })
    }

    /// A budget of the same memory for captures of less importance: they stop where half of it is used, whoever uses it.
    pub fn lower_half(&self) -> Arc<Self> {
        Arc::new(Self { limits: CaptureLimits { total: self.limits.total / 2, ..self.limits }, used: self.used.clone() })
    }

    /// How many bytes captures keep alive now, and at most.
    pub fn fill(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.limits.total)
    }

    /// How many bytes captures keep alive now; never more than the total.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.fill().0
    }
}

/// The bytes that one capture has reserved. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<CaptureBudget>,
    bytes: usize,
}

impl Reservation {
    /// Nothing yet.
    pub(crate) const fn new(budget: Arc<CaptureBudget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// How many bytes are reserved.
    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many bytes of memory a reference to `length` bytes may pin.
    pub(crate) fn pinned(&self, length: usize) -> usize {
        length.max(self.budget.limits.read_buffer)
    }

    /// Reserves `more` bytes, or none.
    ///
    /// # Errors
    ///
    /// If the body's budget, or the shared one, has no room for them.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Incomplete> {
        let bytes = self.bytes.checked_add(more).filter(|bytes| *bytes <= self.budget.limits.body).ok_or(Incomplete::TooLarge)?;
        let fits = |used: usize| used.checked_add(more).filter(|used| *used <= self.budget.limits.total);
        self.budget.used.fetch_update(Relaxed, Relaxed, fits).map_err(|_| Incomplete::BudgetSpent)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Relaxed);
    }
}
