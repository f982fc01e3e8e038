//! What requests use: reads that never wait past their deadline, and writes that nobody waits for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};

use crate::connect::{Connector, Question};
use crate::counts::{RedisCounts, add};
use crate::error::{RedisRefusal, describe};
use crate::keeper::RedisKeeper;
use crate::queue::{QueueBounds, RedisWrite};
use crate::shared::{Shared, is_lost, is_outage};
use crate::target::RedisTarget;
use lapwing_ledger::Stamp;
use lapwing_settings::Fault;

/// A client of one Redis. Clones share a connection, which [`RedisKeeper`] makes and replaces.
#[derive(Clone)]
pub struct RedisClient {
    shared: Arc<Shared>,
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient").field("counts", &self.counts()).finish()
    }
}

impl RedisClient {
    /// A client of the Redis that the section `section` names, and what keeps its connection, which the caller runs. `probe` is a key
    /// that the user may read; it need not be there.
    ///
    /// # Errors
    ///
    /// A password or certificate that cannot be read.
    pub fn new(section: &str, target: RedisTarget, queue: QueueBounds, probe: Vec<u8>) -> Result<(Self, RedisKeeper), Fault> {
        let connector = Connector::new(section, target)?;
        let shared = Arc::new(Shared::new(queue));
        Ok((Self { shared: shared.clone() }, RedisKeeper::new(connector, shared, probe)))
    }

    /// The values of `keys` in one round trip, in their order. It returns by the deadline, to the granularity of the runtime's timer
    /// (1 ms); at once if there is no connection, the breaker is open, or answers take longer than the deadline.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn get<K: AsRef<[u8]>>(&self, keys: &[K], deadline: Duration) -> Result<Vec<Option<Bytes>>, RedisRefusal> {
        let mut command = redis::cmd("MGET");
        for key in keys {
            command.arg(key.as_ref());
        }
        let values = match self.ask(Question::One(&command), deadline, true).await?.pop() {
            Some(Value::Array(values)) if values.len() == keys.len() => values,
            Some(other) => return Err(self.unexpected(&other)),
            None => return Err(self.unexpected(&Value::Nil)),
        };
        let counters = &self.shared.counters;
        let found: Vec<_> = values.into_iter().map(bytes_of).collect();
        let hits = found.iter().flatten().count();
        add(&counters.hits, hits);
        add(&counters.misses, found.len() - hits);
        Ok(found)
    }

    /// The answers to commands that are sent together, in their order; an error of one command is its answer. As for [`Self::get`],
    /// it returns by the deadline; but it is tried although answers take longer on average, because whoever asks needs them. Commands must
    /// read, or may be sent without being answered.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn run(&self, commands: &Pipeline, deadline: Duration) -> Result<Vec<Value>, RedisRefusal> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(Question::Many(commands), deadline, false).await
    }

    /// The answer to one command, which may be an error. As for [`Self::get`], it returns by the deadline.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn run_one(&self, command: &Cmd, deadline: Duration) -> Result<Value, RedisRefusal> {
        Ok(self.ask(Question::One(command), deadline, true).await?.pop().unwrap_or(Value::Nil))
    }

    /// Writes a value when its turn comes; `false` if it is dropped, because too many wait or the server is full.
    pub fn write_behind(&self, write: RedisWrite) -> bool {
        let is_queued = self.shared.queue.push(write);
        if is_queued {
            self.shared.wake.notify_one();
        } else {
            add(&self.shared.counters.dropped_writes, 1);
        }
        is_queued
    }

    /// What became of reads and writes so far.
    #[must_use]
    pub fn counts(&self) -> RedisCounts {
        let (queued, queued_bytes) = self.shared.queue.size();
        let is_up = self.shared.is_up() && !self.shared.breaker.is_open();
        let breaker_opens = self.shared.breaker.opens();
        RedisCounts { is_up, queued, queued_bytes, breaker_opens, ..self.shared.counters.counts() }
    }

    /// With `spares`, it is not waited for what takes longer than the deadline on average.
    async fn ask(&self, question: Question<'_>, deadline: Duration, spares: bool) -> Result<Vec<Value>, RedisRefusal> {
        let (shared, counters) = (&*self.shared, &self.shared.counters);
        if shared.breaker.is_open() {
            add(&counters.refused, 1);
            return Err(RedisRefusal::Open);
        }
        let Some(mut link) = shared.link() else {
            add(&counters.refused, 1);
            return Err(RedisRefusal::Away);
        };
        if spares && Duration::from_nanos(counters.round_trip_ns()) > deadline {
            add(&counters.hopeless, 1);
            return Err(RedisRefusal::Hopeless);
        }
        let began = Stamp::now();
        match tokio::time::timeout(deadline, link.ask(question)).await {
            Ok(Ok(values)) if !values.iter().any(is_outage) => {
                counters.took(began.elapsed());
                shared.breaker.succeeded();
                add(&counters.reads, 1);
                Ok(values)
            }
            Ok(Ok(_)) => Err(self.error("the server cannot answer yet".to_owned(), false)),
            Ok(Err(error)) => Err(self.error(describe(&error), is_lost(&error))),
            Err(_) => {
                add(&counters.timeouts, 1);
                shared.failed(false);
                Err(RedisRefusal::Late)
            }
        }
    }

    fn error(&self, what: String, is_lost: bool) -> RedisRefusal {
        add(&self.shared.counters.errors, 1);
        self.shared.failed(is_lost);
        RedisRefusal::Failed(what)
    }

    fn unexpected(&self, value: &Value) -> RedisRefusal {
        let what = match value {
            Value::ServerError(error) => format!("server error ({})", error.code()),
            _ => "an answer of another form".to_owned(),
        };
        self.error(what, false)
    }
}

/// The bytes of a value; a value of another type is none.
fn bytes_of(value: Value) -> Option<Bytes> {
    if let Value::BulkString(bytes) = value { Some(Bytes::from(bytes)) } else { None }
}
