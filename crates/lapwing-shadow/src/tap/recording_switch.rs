//! The switch of recordings. While none runs, a request pays one look at a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::{ArcSwapOption, Guard};

use super::branch::TapBranch;

/// Turns recording on and off; at most one runs at a time.
#[derive(Debug, Default)]
pub struct RecordingSwitch {
    is_on: Arc<AtomicBool>,
    branch: ArcSwapOption<TapBranch>,
}

impl RecordingSwitch {
    /// Begins to copy requests for `branch`, until the guard is dropped. `None` if a recording runs already.
    pub fn turn_on(self: &Arc<Self>, branch: TapBranch) -> Option<RunningRecording> {
        let previous = self.branch.compare_and_swap(&None::<Arc<TapBranch>>, Some(Arc::new(branch)));
        if previous.is_some() {
            return None;
        }
        self.is_on.store(true, Relaxed);
        Some(RunningRecording(self.clone()))
    }

    /// Whether a recording runs.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.is_on.clone()
    }

    /// What the running recording wants.
    pub(crate) fn load(&self) -> Option<Arc<TapBranch>> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        Guard::into_inner(self.branch.load())
    }
}

/// A recording that runs. Dropping it ends it: no further request is copied.
#[derive(Debug)]
pub struct RunningRecording(Arc<RecordingSwitch>);

impl Drop for RunningRecording {
    fn drop(&mut self) {
        self.0.is_on.store(false, Relaxed);
        self.0.branch.store(None);
    }
}
