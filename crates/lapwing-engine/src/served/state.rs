//! What a served model's thread tells those who call: whether it is warm, and whether its device has failed for good.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::service::{CallError, Placement};

/// Shared by the thread and the callers.
#[derive(Debug, Default)]
pub(super) struct State {
    warm: AtomicBool,
    /// How the model stood when its device failed: nothing leads out of it.
    ended: OnceLock<Arc<Placement>>,
    /// What each run fails with, as if the device had said it.
    #[cfg(test)]
    pub(super) breaks: parking_lot::Mutex<Option<String>>,
}

impl State {
    /// Whether calls are taken.
    pub(super) fn is_ready(&self) -> bool {
        self.warm.load(Ordering::Acquire) && self.ended.get().is_none()
    }

    pub(super) fn set_warm(&self, is_warm: bool) {
        self.warm.store(is_warm, Ordering::Release);
    }

    /// Keeps how the model stood when its device failed. Gives whether this is the first time.
    pub(super) fn end(&self, placement: &Placement, reason: &str) -> bool {
        self.ended.set(Arc::new(Placement { fault: Some(reason.to_owned()), ..placement.clone() })).is_ok()
    }

    /// How the model stands if its device has failed.
    pub(super) fn ended(&self) -> Option<&Arc<Placement>> {
        self.ended.get()
    }

    /// What every call is told once the device has failed.
    pub(super) fn fault(&self) -> Option<CallError> {
        let reason = self.ended.get()?.fault.clone()?;
        Some(CallError::Device { reason })
    }
}
