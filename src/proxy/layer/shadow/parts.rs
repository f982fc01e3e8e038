//! What a tap hands copies over with: the queue, the budget, the quotas and the counts of one purpose; and which requests it wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_queue::ArrayQueue;
use http::Request;

use super::job::ShadowJob;
use crate::ledger::{CopyCause, LabelId};
use crate::protocol::Protocols;
use crate::proxy;
use crate::proxy::body::RequestBody;
use crate::proxy::body::capture::{CaptureBudget, CaptureLimits};
use crate::settings::Size;
use crate::shadow::{Config, QuotaIndex, QuotaResult, QuotaTable, Sampled, Sampler, ShadowCounters, ShadowDrop};

/// Where copies of one purpose go, and what became of them.
#[derive(Debug)]
pub(crate) struct TapParts {
    pub(crate) queue: ArrayQueue<ShadowJob>,
    pub(crate) budget: Arc<CaptureBudget>,
    /// The part of it that requests may use which a quota has not taken yet.
    pub(crate) candidates: Arc<CaptureBudget>,
    pub(crate) counters: Arc<ShadowCounters>,
    pub(crate) quotas: Arc<QuotaTable>,
    /// Whether nothing is copied for now, because no target would be sent a copy.
    is_paused: AtomicBool,
}

impl TapParts {
    /// Up to `waiting` copies (at least 1) wait to be taken, with bodies within `limits`, for so many targets.
    pub(crate) fn new(waiting: usize, limits: CaptureLimits, targets: usize, quotas: Arc<QuotaTable>) -> Arc<Self> {
        Self::counted(waiting, limits, Arc::new(ShadowCounters::new(targets)), quotas)
    }

    /// The same with counts that others add to.
    pub(crate) fn counted(
        waiting: usize,
        limits: CaptureLimits,
        counters: Arc<ShadowCounters>,
        quotas: Arc<QuotaTable>,
    ) -> Arc<Self> {
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
    pub(crate) fn limits(config: &Config, proxy: &proxy::Config) -> CaptureLimits {
        let bytes = |size: Size| usize::try_from(size.get()).unwrap_or(usize::MAX);
        CaptureLimits { total: bytes(config.budget), body: bytes(config.max_body), read_buffer: proxy.max_read_buffer() }
    }

    /// Stops copying, or goes on.
    pub(crate) fn pause(&self, is_paused: bool) {
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
    pub(super) fn has_room_for_candidates(&self) -> bool {
        !self.is_paused.load(Relaxed) && 2 * self.queue.len() < self.queue.capacity()
    }
}

/// One purpose of copies: which requests it wants, and where they go.
#[derive(Debug)]
pub(crate) struct TapBranch {
    pub(crate) parts: Arc<TapParts>,
    pub(crate) sampler: Sampler,
}

impl TapBranch {
    /// Why this purpose wants the request, by its head: the share draws it and there is room for its copy (one without room, or that
    /// may not be repeated, is counted), or the share does not, and a quota is to be asked.
    pub(super) fn selects(&self, protocols: &Protocols, request: &Request<RequestBody>) -> Option<CopyCause> {
        match self.sampler.takes(protocols, request.method(), request.uri().path(), request.headers()) {
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

    /// The quota of a request that the share does not draw, if its route has one and there is room to capture it.
    pub(super) fn quota(&self, protocols: &Protocols, request: &Request<RequestBody>, route: LabelId) -> Option<QuotaIndex> {
        let quota = self.parts.quotas.find(route)?;
        if self.sampler.may_copy(protocols, request.method(), request.uri().path(), request.headers()) != Sampled::Taken {
            return None;
        }
        let has_room = self.parts.has_room_for_candidates();
        if !has_room {
            self.parts.quotas.record(quota, QuotaResult::Skipped);
        }
        has_room.then_some(quota)
    }
}
