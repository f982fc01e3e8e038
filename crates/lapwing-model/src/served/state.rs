//! What a served model's thread shares with callers: the calls that wait, whether the model is warm, and whether its device has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_channel::oneshot;
use smallvec::SmallVec;

use crate::CallWork;
use crate::service::{Answer, CallError, Placement, WarmLine};
use lapwing_plan::tensor::Tensor;

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) inputs: Vec<Tensor>,
    /// The wanted outputs, by their index in the model.
    pub(crate) outputs: SmallVec<[usize; 4]>,
    pub(crate) work: CallWork,
    pub(crate) answer: oneshot::Sender<Result<Answer, CallError>>,
}

/// Shared by the thread and the callers.
#[derive(Debug, Default)]
pub(crate) struct ServedState {
    warm: AtomicBool,
    /// What warm-up measured.
    pub(crate) line: OnceLock<WarmLine>,
    /// The placement when the device failed; it is final.
    ended: OnceLock<Arc<Placement>>,
    /// Tests only: the device error with which every run fails.
    #[cfg(test)]
    pub(crate) breaks: parking_lot::Mutex<Option<String>>,
}

impl ServedState {
    /// Whether calls are taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.warm.load(Ordering::Acquire) && self.ended.get().is_none()
    }

    pub(crate) fn set_warm(&self, is_warm: bool) {
        self.warm.store(is_warm, Ordering::Release);
    }

    /// Records the placement when the device failed. Returns whether this is the first failure.
    pub(crate) fn end(&self, placement: &Placement, reason: &str) -> bool {
        self.ended.set(Arc::new(Placement { fault: Some(reason.to_owned()), ..placement.clone() })).is_ok()
    }

    /// The placement if the device has failed.
    pub(crate) fn ended(&self) -> Option<&Arc<Placement>> {
        self.ended.get()
    }

    /// The error of every call once the device has failed.
    pub(crate) fn fault(&self) -> Option<CallError> {
        let reason = self.ended.get()?.fault.clone()?;
        Some(CallError::Device { reason })
    }
}
