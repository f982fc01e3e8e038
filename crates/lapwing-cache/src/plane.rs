//! What the cache of a process keeps, for all its workers and whatever settings are in force.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use quick_cache::sync::Cache as Table;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::answer::StoredAnswer;
use crate::coalesce::{CoalesceBounds, CoalesceRole, Coalescer, FollowerId, LeaderEnd, LeaderTicket, WhyAlone};
use crate::counts::{CacheCounters, CacheCounts};
use crate::generation::CacheGenerations;
use crate::ghost::{CacheGhost, GHOST_STEPS, GhostQuestion, GhostSaving};
use crate::key::{CacheKey, KeyMaker};
use crate::shared::{SharedAnswers, SharedCounts, SharedScope};
use crate::store::{AnswerStore, StoreCounts};
use crate::trust::{CacheSeries, CacheTrust, SeriesTrust};
use lapwing_ledger::{LabelId, Stamp};

/// Of how many questions it is kept what was answered, to compare the next answer with.
const SEEN: usize = 16_384;
/// The sizes of the ghost's caches in MiB, and the times for which their answers are given in seconds.
const GHOST_MIB: [u64; GHOST_STEPS] = [1, 4, 16, 64, 256, 1_024, 4_096, 16_384];
const GHOST_TTL_S: [u64; GHOST_STEPS] = [1, 10, 60, 120, 300, 600, 3_600, 86_400];

/// What was answered to a question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenAnswer {
    pub(crate) digest: [u8; 16],
    pub(crate) at: Stamp,
}

/// How long is waited for a leader's answer, and where it comes.
type Told = oneshot::Sender<Option<Arc<StoredAnswer>>>;

#[derive(Debug)]
struct Waiting {
    coalescer: Coalescer,
    followers: FxHashMap<FollowerId, Told>,
}

/// What a joining request does.
#[derive(Debug)]
pub(crate) enum Joined {
    Leads(LeaderTicket),
    Follows { id: FollowerId, answer: oneshot::Receiver<Option<Arc<StoredAnswer>>> },
    Alone(WhyAlone),
}

/// How often an upstream was found to be away.
struct Absences {
    count: Box<dyn Fn() -> u64 + Send + Sync>,
    known: AtomicU64,
}

impl fmt::Debug for Absences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Absences").field("known", &self.known).finish_non_exhaustive()
    }
}

/// What the cache of a process keeps.
#[derive(Debug)]
pub struct CachePlane {
    pub(crate) keys: KeyMaker,
    pub(crate) generations: CacheGenerations,
    pub(crate) trust: CacheTrust,
    pub(crate) counters: CacheCounters,
    pub(crate) seen: Table<CacheKey, SeenAnswer>,
    /// With the bounds that it has.
    store: Mutex<Option<([u64; 2], Arc<AnswerStore>)>>,
    waiting: Mutex<Waiting>,
    ghost: Mutex<Option<Observed>>,
    /// The version that a model last said to have.
    versions: Mutex<FxHashMap<LabelId, Box<str>>>,
    absences: Absences,
    /// What other processes have answered, if they share a Redis.
    shared: OnceLock<SharedAnswers>,
    /// How many answers are asked for anew while they are still good.
    pub(crate) refreshing: AtomicUsize,
}

/// What the ghost saw, from its first request to its last.
#[derive(Debug)]
struct Observed {
    ghost: Box<CacheGhost>,
    first: Stamp,
    last: Stamp,
}

/// How many models' versions are known.
const MAX_VERSIONS: usize = 1_024;

/// What caches of a size would have brought whose answers are given for a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GhostCell {
    /// Their size in bytes.
    pub max_bytes: u64,
    /// For how long an answer is given, in seconds.
    pub ttl_s: u64,
    /// What they would have brought.
    pub saving: GhostSaving,
}

/// What is known of the cache.
#[derive(Clone, Debug)]
pub struct CacheState {
    /// What happened.
    pub counts: CacheCounts,
    /// What is kept.
    pub store: StoreCounts,
    /// How many lead others now, and how many follow.
    pub leading: usize,
    /// See `leading`.
    pub following: usize,
    /// What the Redis that is shared did; `None` without one.
    pub shared: Option<SharedCounts>,
    /// How far each series is trusted.
    pub series: Vec<(CacheSeries, SeriesTrust)>,
    /// What caches of other sizes would have brought, of requests that passed; empty until one has.
    pub ghost: Vec<GhostCell>,
    /// From the first of these requests to the last, in nanoseconds.
    pub observed_ns: u64,
}

impl CachePlane {
    /// One without answers, whose keys are made with this secret.
    pub(crate) fn new(secret: [u8; 32], absences: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let bounds = CoalesceBounds { followers: 0, leaders: 0, wait_ns: 0 };
        Self {
            keys: KeyMaker::new(secret),
            generations: CacheGenerations::default(),
            trust: CacheTrust::default(),
            counters: CacheCounters::default(),
            seen: Table::new(SEEN),
            store: Mutex::default(),
            waiting: Mutex::new(Waiting { coalescer: Coalescer::new(bounds), followers: FxHashMap::default() }),
            ghost: Mutex::default(),
            versions: Mutex::default(),
            absences: Absences { known: AtomicU64::new(absences()), count: Box::new(absences) },
            shared: OnceLock::new(),
            refreshing: AtomicUsize::new(0),
        }
    }

    /// The store of these bounds; another one if they were others before.
    pub(crate) fn store(&self, max_bytes: u64, max_entry: u64) -> Arc<AnswerStore> {
        let mut store = self.store.lock();
        if let Some((bounds, store)) = &*store
            && *bounds == [max_bytes, max_entry]
        {
            return store.clone();
        }
        let made = Arc::new(AnswerStore::new(max_bytes, max_entry));
        *store = Some(([max_bytes, max_entry], made.clone()));
        made
    }

    pub(crate) fn bound_waiting(&self, bounds: CoalesceBounds) {
        self.waiting.lock().coalescer.set_bounds(bounds);
    }

    /// How long one may wait for the answer to the same request, in nanoseconds.
    pub(crate) fn wait_ns(&self) -> u64 {
        self.waiting.lock().coalescer.bounds().wait_ns
    }

    pub(crate) fn join(&self, key: CacheKey, now: Stamp) -> Joined {
        let Waiting { coalescer, followers } = &mut *self.waiting.lock();
        match coalescer.join(key, now) {
            CoalesceRole::Lead(ticket) => Joined::Leads(ticket),
            CoalesceRole::Alone(why) => Joined::Alone(why),
            CoalesceRole::Follow { id, .. } => {
                let (told, answer) = oneshot::channel();
                followers.insert(id, told);
                Joined::Follows { id, answer }
            }
        }
    }

    /// A leader has ended, with an answer that others may be given or without.
    pub(crate) fn finish(&self, ticket: LeaderTicket, answer: Option<&Arc<StoredAnswer>>) {
        let end = if answer.is_some() { LeaderEnd::Shared } else { LeaderEnd::Failed };
        let told: Vec<Told> = {
            let Waiting { coalescer, followers } = &mut *self.waiting.lock();
            let (_, ids) = coalescer.finish(ticket, end);
            ids.iter().filter_map(|id| followers.remove(id)).collect()
        };
        for one in told {
            // its client may have left
            drop(one.send(answer.cloned()));
        }
    }

    /// A follower does not wait any more.
    pub(crate) fn leave(&self, id: FollowerId) {
        let Waiting { coalescer, followers } = &mut *self.waiting.lock();
        coalescer.leave(id);
        followers.remove(&id);
    }

    /// Notes a request that passed, for the ghost.
    pub(crate) fn observe(&self, question: GhostQuestion, now: Stamp) {
        let sizes = GHOST_MIB.map(|mib| mib << 20);
        let ttls = GHOST_TTL_S.map(|seconds| seconds * 1_000_000_000);
        let mut observed = self.ghost.lock();
        let observed =
            observed.get_or_insert_with(|| Observed { ghost: Box::new(CacheGhost::new(sizes, ttls)), first: now, last: now });
        observed.ghost.observe(question, now);
        observed.last = observed.last.max(now);
    }

    /// A model said that it has this version. If it had another before, what it answered is forgotten.
    pub(crate) fn on_version(&self, model: LabelId, name: Option<&str>, version: &str) {
        let mut versions = self.versions.lock();
        let is_new = match versions.get(&model) {
            Some(known) if **known == *version => return,
            Some(_) => true,
            None if versions.len() >= MAX_VERSIONS => return,
            None => false,
        };
        versions.insert(model, version.into());
        drop(versions);
        if is_new {
            self.renew(name);
            self.trust.forget(name.map(|_| model));
        }
    }

    /// What other processes have answered, if they share a Redis.
    pub(crate) fn shared(&self) -> Option<&SharedAnswers> {
        self.shared.get()
    }

    /// Looks for answers there too, from now on. Only the first has an effect.
    pub(crate) fn share(&self, shared: SharedAnswers) {
        let _ = self.shared.set(shared);
    }

    /// Forgets the answers of a model, or all, here and wherever they are shared.
    pub(crate) fn renew(&self, model: Option<&str>) {
        match model {
            Some(model) => self.generations.renew_model(model),
            None => self.generations.renew(),
        }
        if let Some(shared) = self.shared() {
            shared.renew(model);
        }
    }

    /// Another process has forgotten answers: those that are kept here go too.
    pub(crate) fn forget_as(&self, scope: &SharedScope) {
        match scope {
            SharedScope::All => self.generations.renew(),
            SharedScope::Model(model) => self.generations.renew_model(model),
            SharedScope::Unnamed => self.generations.renew_unnamed(),
        }
    }

    /// Forgets all answers if an upstream was away since: who comes back may serve another model.
    pub(crate) fn forget_who_left(&self) {
        let count = (self.absences.count)();
        if count != self.absences.known.load(Relaxed) && self.absences.known.swap(count, Relaxed) != count {
            self.purge();
        }
    }

    /// Forgets all answers, and what is known of who may be trusted: somebody asked for it, or the upstream restarted.
    pub fn purge(&self) {
        self.renew(None);
        self.trust.forget(None);
        self.seen.clear();
        if let Some((_, store)) = &*self.store.lock() {
            store.clear();
        }
    }

    /// What is known of it.
    #[must_use]
    pub fn state(&self) -> CacheState {
        let (leading, following) = self.waiting.lock().coalescer.counts();
        let observed = self.ghost.lock();
        CacheState {
            counts: self.counters.counts(),
            store: self.store.lock().as_ref().map(|(_, store)| store.counts()).unwrap_or_default(),
            leading,
            following,
            shared: self.shared().map(SharedAnswers::counts),
            series: self.trust.list(),
            ghost: observed.as_ref().map(|observed| cells(&observed.ghost)).unwrap_or_default(),
            observed_ns: observed.as_ref().map_or(0, |observed| observed.last.since(observed.first)),
        }
    }
}

/// What each of the ghost's caches would have brought.
fn cells(ghost: &CacheGhost) -> Vec<GhostCell> {
    let each = |(size, mib): (usize, u64)| {
        let of =
            move |(ttl, ttl_s): (usize, u64)| GhostCell { max_bytes: mib << 20, ttl_s, saving: ghost.saving(None, size, ttl) };
        GHOST_TTL_S.into_iter().enumerate().map(of)
    };
    GHOST_MIB.into_iter().enumerate().flat_map(each).collect()
}
