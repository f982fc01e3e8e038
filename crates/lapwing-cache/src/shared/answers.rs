//! The second level as a data plane calls it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::Notify;

use super::counts::{SharedCounters, SharedCounts, bump};
use super::epochs::{Epochs, SharedScope};
use super::inner::{Inner, bytes_of, epoch_of, values_of};
use super::keeper::SharedKeeper;
use super::keys::{EpochSlot, SharedNames};
use super::lookup::{SharedLookup, SharedMiss};
use crate::answer::StoredAnswer;
use crate::answerable::RequestTerms;
use crate::key::CacheKey;
use crate::sealed::{AnswerSealer, SharedEpoch};
use lapwing_ledger::Stamp;
use lapwing_redis::{RedisClient, RedisCommand, RedisConfig, RedisWrite, shared_secret};
use lapwing_settings::Fault;

/// What the secret of a cache is derived for.
const CONTEXT: &str = "lapwing cache secret 1";
/// What an answer takes in the queue beside its body.
const BESIDE_BODY: u64 = 1_024;

/// The second level of a cache. Clones share it.
#[derive(Clone)]
pub struct SharedAnswers {
    inner: Arc<Inner>,
}

impl fmt::Debug for SharedAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAnswers").field("counts", &self.counts()).finish()
    }
}

impl SharedAnswers {
    /// The secret that all processes with this section have, for [`crate::KeyMaker`] and for [`Self::new`]; `None` without a second level.
    ///
    /// # Errors
    ///
    /// If the file of the secret cannot be used, or there is none.
    pub fn secret(section: &str, config: &RedisConfig) -> Result<Option<[u8; 32]>, Fault> {
        if !config.url.is_on() {
            return Ok(None);
        }
        let Some(file) = config.secret_file.on() else {
            return Err(Fault::new(
                format!("{section}.secret_file"),
                "off",
                "is missing: what pods share is keyed and sealed with it",
            ));
        };
        let secret = shared_secret(section, "secret_file", file)?;
        Ok(Some(blake3::derive_key(CONTEXT, &secret)))
    }

    /// The second level that a section names, with its background, which the caller runs; `None` if it names none. `on_forgotten` is told
    /// what other processes have forgotten, so that this one forgets it too.
    ///
    /// # Errors
    ///
    /// A file of the section that cannot be used.
    pub fn new(
        section: &str,
        config: &RedisConfig,
        max_entry: u64,
        on_forgotten: impl Fn(SharedScope) + Send + Sync + 'static,
    ) -> Result<Option<(Self, SharedKeeper)>, Fault> {
        let (Some(target), Some(secret)) = (config.target(), Self::secret(section, config)?) else { return Ok(None) };
        let names = SharedNames::new(&config.prefix);
        let probe = names.epoch(EpochSlot::All);
        let (client, keeper) = RedisClient::new(section, target, config.write_queue.bounds(), probe)?;
        let inner = Arc::new(Inner {
            client,
            names,
            epochs: Epochs::default(),
            counters: SharedCounters::default(),
            wake: Notify::new(),
            sealer: AnswerSealer::new(&secret),
            deadline: config.deadline,
            max_entry: AtomicU64::new(max_entry),
            on_forgotten: Box::new(on_forgotten),
        });
        Ok(Some((Self { inner: inner.clone() }, SharedKeeper::new(inner, keeper))))
    }

    /// The largest body of an answer, from now on.
    pub fn set_max_entry(&self, max_entry: u64) {
        self.inner.max_entry.store(max_entry, Relaxed);
    }

    /// What is there under a key ([`crate::KeyedRequest::shared`]) for a request on these terms to this model, for which the model takes
    /// `forward_ns`, as far as that is known. It returns by the deadline, and at once if Redis is away.
    ///
    /// It is asked before the upstream is: only then may the upstream's answer be stored, with the epoch that this returns.
    pub async fn get(
        &self,
        key: &CacheKey,
        model: Option<&str>,
        request: &RequestTerms,
        forward_ns: Option<u64>,
        now: (Stamp, SystemTime),
    ) -> SharedLookup {
        let (answer, epoch) = match self.read(key, model, request, forward_ns).await {
            Ok((epoch, value)) => (self.open(key, epoch, value, request, now), Some(epoch)),
            Err(miss) => (Err(miss), None),
        };
        match &answer {
            Ok(_) => self.inner.counters.hit(),
            Err(miss) => self.inner.counters.miss(miss),
        }
        SharedLookup { answer, epoch }
    }

    /// The epochs that apply, and what is there under the key.
    async fn read(
        &self,
        key: &CacheKey,
        model: Option<&str>,
        request: &RequestTerms,
        forward_ns: Option<u64>,
    ) -> Result<(SharedEpoch, Option<Bytes>), SharedMiss> {
        let Inner { client, names, epochs, deadline, .. } = &*self.inner;
        let question = epochs.ask(model).ok_or(SharedMiss::WithoutEpoch)?;
        let slots = [EpochSlot::All, EpochSlot::of(model)];
        let mut command = RedisCommand::new();
        command.arg("MGET").arg(names.epoch(slots[0])).arg(names.epoch(slots[1]));
        if request.may_answer {
            command.arg(names.answer(key));
        }
        let answered = client.run_one(&command, deadline.of(forward_ns)).await.map_err(SharedMiss::Unanswered)?;
        let values = values_of(answered).map_err(SharedMiss::Unanswered)?;
        let mut values = values.into_iter();
        let read = slots.map(|slot| (slot, values.next().and_then(epoch_of)));
        let is_usable = self.inner.learn(question, &read);
        match read {
            [(_, Some(all)), (_, Some(model))] if is_usable => Ok((SharedEpoch { all, model }, values.next().and_then(bytes_of))),
            _ => Err(SharedMiss::WithoutEpoch),
        }
    }

    fn open(
        &self,
        key: &CacheKey,
        epoch: SharedEpoch,
        value: Option<Bytes>,
        request: &RequestTerms,
        now: (Stamp, SystemTime),
    ) -> Result<StoredAnswer, SharedMiss> {
        let sealed = value.ok_or(SharedMiss::Absent)?;
        let max_entry = self.inner.max_entry.load(Relaxed);
        let answer = self.inner.sealer.open(key, epoch, &sealed, max_entry, now).map_err(SharedMiss::Refused)?;
        if answer.suits(request, now.0) { Ok(answer) } else { Err(SharedMiss::TooOld) }
    }

    /// Stores an answer under a key in the epoch that [`Self::get`] returned before it was asked for. Nobody waits: it is sealed and
    /// written in the background; `false` if too much waits for that.
    pub fn put(&self, key: CacheKey, epoch: SharedEpoch, answer: Arc<StoredAnswer>, (now, wall): (Stamp, SystemTime)) -> bool {
        let kept = Duration::from_nanos(answer.kept_ns(now));
        let (asked, left) = (wall.checked_sub(kept), Duration::from_nanos(answer.terms().fresh_ns).checked_sub(kept));
        let (Some(asked), Some(left)) = (asked, left.filter(|left| !left.is_zero())) else { return false };
        let inner = &self.inner;
        bump(&inner.counters.put);
        let sealer = inner.sealer.clone();
        let bytes = answer.body().len() as u64 + BESIDE_BODY;
        let make = Box::new(move || Some((Bytes::from(sealer.seal(&key, epoch, &answer, asked)), left)));
        inner.client.write_behind(RedisWrite { key: inner.names.answer(&key), bytes, make })
    }

    /// Makes all processes forget what was stored: of a model and of requests that name none, or everything. From now on this process
    /// gives nothing of it; others do not as soon as Redis knows, which the background tells it.
    pub fn renew(&self, model: Option<&str>) {
        bump(&self.inner.counters.renewed);
        self.inner.epochs.want(model);
        self.inner.wake.notify_one();
    }

    /// Whether Redis does not know yet of something that is to be forgotten.
    #[must_use]
    pub fn is_renewing(&self) -> bool {
        !self.inner.epochs.pending().is_empty()
    }

    /// What became of questions so far.
    #[must_use]
    pub fn counts(&self) -> SharedCounts {
        self.inner.counters.counts(self.inner.client.counts())
    }
}
