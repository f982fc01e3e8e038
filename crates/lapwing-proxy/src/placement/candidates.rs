//! What is known of several upstreams, and which requests count as in flight there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::config::UpstreamProtocol;
use crate::health::UpstreamHealth;
use crate::in_flight::OnClose;
use lapwing_dispatch::{HomeName, UpstreamSpeeds};
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

/// What the choice of an upstream looks at.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Under which its exchanges are counted.
    pub(crate) label: LabelId,
    pub(crate) health: Arc<UpstreamHealth>,
    /// By which it is the home of keys.
    pub(crate) name: HomeName,
    /// Requests in flight, of all workers.
    pub(crate) active: AtomicU32,
    /// Of these, those whose work is known, and what they ask for together.
    known: AtomicU32,
    work: AtomicU64,
}

impl Candidate {
    fn new(PoolMember { upstream, name, label }: &PoolMember) -> Self {
        let (health, name) = (upstream.health.clone(), HomeName::of(name));
        Self { label: *label, health, name, active: AtomicU32::new(0), known: AtomicU32::new(0), work: AtomicU64::new(0) }
    }

    /// A request begins that asks for so much, if that is known.
    pub(crate) fn begin(&self, work: Option<u64>) {
        self.active.fetch_add(1, Relaxed);
        if let Some(work) = work {
            self.known.fetch_add(1, Relaxed);
            self.work.fetch_add(work, Relaxed);
        }
    }

    /// It ends.
    pub(crate) fn end(&self, work: Option<u64>) {
        self.active.fetch_sub(1, Relaxed);
        if let Some(work) = work {
            self.known.fetch_sub(1, Relaxed);
            self.work.fetch_sub(work, Relaxed);
        }
    }

    /// What requests in flight ask for whose work is known, how many these are, and how many others there are.
    #[allow(clippy::cast_precision_loss, reason = "of each request below 2^52")]
    pub(crate) fn asked(&self) -> (f64, f64, f64) {
        let known = self.known.load(Relaxed);
        let others = self.active.load(Relaxed).saturating_sub(known);
        (self.work.load(Relaxed) as f64, f64::from(known), f64::from(others))
    }
}

/// What is known of several upstreams, whatever settings are in force.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub(crate) all: Box<[Candidate]>,
    /// Their names, in the same order.
    pub(crate) names: Box<[String]>,
    /// Requests in flight that went to another upstream.
    pub(crate) moved: AtomicU32,
    /// How fast they work, as far as dispatch has learnt it.
    pub(crate) speeds: Arc<UpstreamSpeeds>,
}

impl Candidates {
    pub(crate) fn of(members: &[PoolMember]) -> Self {
        Self {
            all: members.iter().map(Candidate::new).collect(),
            names: members.iter().map(|member| member.name.clone()).collect(),
            moved: AtomicU32::new(0),
            speeds: Arc::default(),
        }
    }
}

/// A request that counts as in flight at an upstream, until its ledger closes.
#[derive(Debug)]
pub(crate) struct PlacedRequest {
    pub(crate) candidates: Arc<Candidates>,
    /// Where it was placed first. Its ledger has the label of the upstream that it went to.
    pub(crate) at: usize,
    /// How much it asks for, if that is known.
    pub(crate) work: Option<u64>,
}

impl OnClose for PlacedRequest {
    fn on_close(self: Box<Self>, ledger: &mut Ledger) {
        let Candidates { all, moved, .. } = &*self.candidates;
        let Some(first) = all.get(self.at) else { return };
        let at_end = all.iter().find(|one| one.label == ledger.series.upstream).unwrap_or(first);
        at_end.end(self.work);
        if at_end.label != first.label {
            moved.fetch_sub(1, Relaxed);
        }
    }
}
