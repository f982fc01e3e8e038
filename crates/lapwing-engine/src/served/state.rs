//! The state that a served model's thread shares with callers: whether the model is warm, and whether its device has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::service::{CallError, Placement, WarmLine};

/// Shared by the thread and the callers.
#[derive(Debug, Default)]
pub(super) struct ServedState {
    warm: AtomicBool,
    /// What warm-up measured.
    pub(super) line: OnceLock<WarmLine>,
    /// The placement when the device failed; it is final.
    ended: OnceLock<Arc<Placement>>,
    /// Tests only: the device error with which every run fails.
    #[cfg(test)]
    pub(super) breaks: parking_lot::Mutex<Option<String>>,
}

impl ServedState {
    /// Whether calls are taken.
    pub(super) fn is_ready(&self) -> bool {
        self.warm.load(Ordering::Acquire) && self.ended.get().is_none()
    }

    pub(super) fn set_warm(&self, is_warm: bool) {
        self.warm.store(is_warm, Ordering::Release);
    }

    /// Records the placement when the device failed. Returns whether this is the first failure.
    pub(super) fn end(&self, placement: &Placement, reason: &str) -> bool {
        self.ended.set(Arc::new(Placement { fault: Some(reason.to_owned()), ..placement.clone() })).is_ok()
    }

    /// The placement if the device has failed.
    pub(super) fn ended(&self) -> Option<&Arc<Placement>> {
        self.ended.get()
    }

    /// The error of every call once the device has failed.
    pub(super) fn fault(&self) -> Option<CallError> {
        let reason = self.ended.get()?.fault.clone()?;
        Some(CallError::Device { reason })
    }
}
