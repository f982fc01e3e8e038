//! What is known of several upstreams, and which requests count as in flight there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::pool::Candidate;
use crate::config::UpstreamProtocol;
use crate::health::UpstreamHealth;
use crate::in_flight::OnClose;
use lapwing_ledger::{LabelId, Ledger};
use lapwing_net::Target;

/// A model server that a data plane sends requests to.
#[derive(Clone, Debug)]
pub struct PlacedUpstream {
    /// Where it is reached.
    pub target: Target,
    /// The HTTP version spoken to it, if that is not `proxy.upstream_protocol`.
    pub protocol: Option<UpstreamProtocol>,
    /// What is known of it, by this data plane and others to the same upstream.
    pub health: Arc<UpstreamHealth>,
}

/// An upstream of several.
#[derive(Clone, Debug)]
pub struct PoolMember {
    /// The upstream.
    pub upstream: PlacedUpstream,
    /// Its name in [`UpstreamRoute::to`](lapwing_dispatch::UpstreamRoute::to).
    pub name: String,
    /// The label under which its exchanges are counted.
    pub label: LabelId,
}

/// What is known of several upstreams, whatever settings are in force.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub(crate) all: Box<[Candidate]>,
    /// Their names, in the same order.
    pub(crate) names: Box<[String]>,
    /// Requests in flight that went to another upstream.
    pub(crate) moved: AtomicU32,
}

impl Candidates {
    pub(crate) fn of(members: &[PoolMember]) -> Self {
        let candidate = |member: &PoolMember| Candidate {
            label: member.label,
            health: member.upstream.health.clone(),
            active: AtomicU32::new(0),
        };
        Self {
            all: members.iter().map(candidate).collect(),
            names: members.iter().map(|member| member.name.clone()).collect(),
            moved: AtomicU32::new(0),
        }
    }
}

/// A request that counts as in flight at an upstream, until its ledger closes.
#[derive(Debug)]
pub(crate) struct PlacedRequest {
    pub(crate) candidates: Arc<Candidates>,
    /// Where it was placed first. Its ledger has the label of the upstream that it went to.
    pub(crate) at: usize,
}

impl OnClose for PlacedRequest {
    fn on_close(self: Box<Self>, ledger: &mut Ledger) {
        let Candidates { all, moved, .. } = &*self.candidates;
        let Some(first) = all.get(self.at) else { return };
        let at_end = all.iter().find(|one| one.label == ledger.series.upstream).unwrap_or(first);
        at_end.active.fetch_sub(1, Relaxed);
        if at_end.label != first.label {
            moved.fetch_sub(1, Relaxed);
        }
    }
}
