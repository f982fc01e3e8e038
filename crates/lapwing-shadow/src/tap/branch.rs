//! One purpose of a tap, shadow targets or a recording: which requests it wants, and the queue, the budget, the quotas and the counts that
//! copies are handed over with; and the switch of recordings. While none runs, a request pays one look at a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::{ArcSwapOption, Guard};
use crossbeam_queue::ArrayQueue;

use crate::config::Config;
use crate::counters::{ShadowCounters, ShadowDrop};
use crate::quota::{QuotaIndex, QuotaResult, QuotaTable};
use crate::sampler::{Sampled, Sampler};
use lapwing_ledger::{CopyCause, LabelId, PairId};
use lapwing_protocol::Protocols;
use lapwing_proxy::{CaptureBudget, CaptureLimits, CapturedExchange, PassingRequest};
use lapwing_settings::Size;

/// A request that is copied. Its body, and the answer, may still be on their way.
#[derive(Debug)]
pub struct ShadowJob {
    /// The number that the request and its copies have in common.
    pub pair: PairId,
    /// Why it is copied.
    pub cause: CopyCause,
    /// What was captured of it.
    pub exchange: CapturedExchange,
}

/// Where copies of one purpose go, and what became of them.
#[derive(Debug)]
pub struct TapParts {
    /// The requests that wait for their copies to be made.
    pub queue: ArrayQueue<ShadowJob>,
    /// The memory that captured bodies may take.
    pub budget: Arc<CaptureBudget>,
    /// The part of it that requests may use which a quota has not taken yet.
    pub(crate) candidates: Arc<CaptureBudget>,
    /// What became of the copies.
    pub counters: Arc<ShadowCounters>,
    /// The quotas by route, which may want a request that the share does not draw.
    pub quotas: Arc<QuotaTable>,
    /// Whether nothing is copied for now, because no target would be sent a copy.
    is_paused: AtomicBool,
}

impl TapParts {
    /// Up to `waiting` copies (at least 1) wait to be taken, with bodies within `limits`, for so many targets.
    pub fn new(waiting: usize, limits: CaptureLimits, targets: usize, quotas: Arc<QuotaTable>) -> Arc<Self> {
        Self::counted(waiting, limits, Arc::new(ShadowCounters::new(targets)), quotas)
    }

    /// The same with counts that others add to.
    pub fn counted(waiting: usize, limits: CaptureLimits, counters: Arc<ShadowCounters>, quotas: Arc<QuotaTable>) -> Arc<Self> {
        let budget = CaptureBudget::new(limits);
        Arc::new(Self {
            queue: ArrayQueue::new(waiting.max(1)),
            candidates: budget.lower_half(),
            budget,
            counters,
            quotas,
            is_paused: AtomicBool::new(false),
        })
    }

    /// The bounds of `config`.
    pub fn limits(config: &Config, proxy: &lapwing_proxy::Config) -> CaptureLimits {
        let bytes = |size: Size| usize::try_from(size.get()).unwrap_or(usize::MAX);
        CaptureLimits { total: bytes(config.budget), body: bytes(config.max_body), read_buffer: proxy.max_read_buffer() }
    }

    /// Stops copying, or goes on.
    pub fn pause(&self, is_paused: bool) {
        // the data plane reads the flag: it is written only where it changes
        if self.is_paused.load(Relaxed) != is_paused {
            self.is_paused.store(is_paused, Relaxed);
        }
    }

    /// Whether a copy can be handed over, or why not.
    fn has_room(&self) -> Result<(), ShadowDrop> {
        if self.is_paused.load(Relaxed) {
            Err(ShadowDrop::CircuitOpen)
        } else if self.queue.is_full() {
            Err(ShadowDrop::QueueFull)
        } else {
            Ok(())
        }
    }

    /// Whether a request that only a quota wants may have room: half of the queue belongs to requests that the share draws.
    pub(crate) fn has_room_for_candidates(&self) -> bool {
        !self.is_paused.load(Relaxed) && 2 * self.queue.len() < self.queue.capacity()
    }
}

/// One purpose of copies: which requests it wants, and where they go.
#[derive(Debug)]
pub struct TapBranch {
    /// Where the copies go.
    pub parts: Arc<TapParts>,
    /// Which requests are drawn.
    pub sampler: Sampler,
}

impl TapBranch {
    /// Why this purpose wants the request, by its head: the share drew it and there is room for its copy (one without room, or that
    /// may not be repeated, is counted), or the share did not, and a quota is to be asked.
    pub(crate) fn selects(&self, protocols: &Protocols, request: &PassingRequest<'_>, is_drawn: bool) -> Option<CopyCause> {
        let sampled = if is_drawn { self.may_copy(protocols, request) } else { Sampled::Not };
        match sampled {
            Sampled::Taken => {}
            Sampled::Not => return (!self.parts.quotas.is_empty()).then_some(CopyCause::Quota),
            Sampled::Refused(reason) => {
                self.parts.counters.drop_sampled(reason);
                return None;
            }
        }
        let has_room = self.parts.has_room().inspect_err(|reason| self.parts.counters.drop_sampled(*reason));
        has_room.ok().map(|()| CopyCause::Share)
    }

    fn may_copy(&self, protocols: &Protocols, request: &PassingRequest<'_>) -> Sampled {
        self.sampler.may_copy(protocols, request.method(), request.path(), request.headers())
    }

    /// The quota of a request that the share does not draw, if its route has one and there is room to capture it.
    pub(crate) fn quota(&self, protocols: &Protocols, request: &PassingRequest<'_>, route: LabelId) -> Option<QuotaIndex> {
        let quota = self.parts.quotas.find(route)?;
        if self.may_copy(protocols, request) != Sampled::Taken {
            return None;
        }
        let has_room = self.parts.has_room_for_candidates();
        if !has_room {
            self.parts.quotas.record(quota, QuotaResult::Skipped);
        }
        has_room.then_some(quota)
    }
}

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
