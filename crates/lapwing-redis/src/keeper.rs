//! The background of a client: makes its connection and replaces it, probes while the breaker is open, and writes what waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::{Pipeline, Value};

use crate::backoff::Backoff;
use crate::connect::{Connector, Link, Question, RESPONSE};
use crate::counts::add;
use crate::shared::{Shared, is_lost, is_outage};
use lapwing_ledger::Stamp;

/// How long a probe may take.
const PROBE: Duration = Duration::from_millis(500);
/// How often the connection is tried when nothing else is to be done.
const IDLE: Duration = Duration::from_secs(5);
/// What is written at once, at most: reads wait behind it on the same connection.
const BATCH: usize = 32;
const BATCH_BYTES: u64 = 64 << 10;
/// How long nothing is written to a server that is full.
const PAUSE: Duration = Duration::from_secs(5);

/// Keeps the connection of a [`crate::RedisClient`]. Nothing is answered before it runs.
#[must_use = "without it the client has no connection"]
pub struct RedisKeeper {
    connector: Connector,
    shared: Arc<Shared>,
    probe: Vec<u8>,
    backoff: Backoff,
    /// Until when nothing is written.
    paused_until: Option<Stamp>,
    /// Why there was no connection, last time: it is logged once.
    complaint: Option<String>,
}

impl std::fmt::Debug for RedisKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisKeeper").field("connector", &self.connector).finish_non_exhaustive()
    }
}

impl RedisKeeper {
    pub(crate) fn new(connector: Connector, shared: Arc<Shared>, probe: Vec<u8>) -> Self {
        Self { connector, shared, probe, backoff: Backoff::default(), paused_until: None, complaint: None }
    }

    /// Runs until it is dropped. Requests do not wait for it.
    pub async fn run(mut self) {
        loop {
            match self.connect().await {
                Ok(link) => {
                    self.complaint = None;
                    let cause = self.tend(link).await;
                    self.shared.set_link(None);
                    tracing::warn!(url = %self.connector.url(), cause, "the connection to redis ended");
                }
                Err(cause) => {
                    add(&self.shared.counters.connect_errors, 1);
                    if self.complaint.as_ref() != Some(&cause) {
                        tracing::warn!(url = %self.connector.url(), cause, "cannot connect to redis; trying again");
                        self.complaint = Some(cause);
                    }
                }
            }
            tokio::time::sleep(self.backoff.next()).await;
        }
    }

    /// A connection that answers.
    async fn connect(&self) -> Result<Link, String> {
        let link = self.connector.connect().await?;
        if self.is_answered(&link).await { Ok(link) } else { Err("a first command is not answered".to_owned()) }
    }

    /// Uses a connection until it ends, and returns why it did.
    async fn tend(&mut self, link: Link) -> String {
        add(&self.shared.counters.connects, 1);
        tracing::info!(url = %self.connector.url(), "connected to redis");
        self.shared.set_link(Some(link.clone()));
        if !self.shared.breaker.is_sound() {
            self.shared.breaker.half_close();
        }
        loop {
            if !self.shared.is_up() {
                return "a command failed".to_owned();
            }
            if self.shared.breaker.is_open() {
                tokio::time::sleep(self.backoff.next()).await;
                if !self.is_answered(&link).await {
                    return "a probe is not answered".to_owned();
                }
                self.shared.breaker.half_close();
                continue;
            }
            match self.write(&link).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(cause) => return cause,
            }
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(IDLE) => {
                    if !self.is_answered(&link).await {
                        return "a probe is not answered".to_owned();
                    }
                    if self.shared.breaker.is_sound() {
                        self.backoff.reset();
                    }
                }
            }
        }
    }

    /// Whether the server answers, and how fast.
    async fn is_answered(&self, link: &Link) -> bool {
        let mut command = redis::cmd("MGET");
        command.arg(&self.probe);
        let began = Stamp::now();
        let mut link = link.clone();
        let answer = tokio::time::timeout(PROBE, link.ask(Question::One(&command))).await;
        self.shared.counters.took(began.elapsed());
        match answer {
            Ok(Ok(values)) => !values.iter().any(is_outage),
            // another command may be allowed
            Ok(Err(error)) => error.code() == Some("NOPERM"),
            Err(_) => false,
        }
    }

    /// Writes the next values, if there are any and the server is not full. Returns whether there were.
    async fn write(&mut self, link: &Link) -> Result<bool, String> {
        if self.paused_until.is_some_and(|until| Stamp::now() < until) {
            return Ok(false);
        }
        if self.paused_until.take().is_some() {
            self.shared.queue.resume();
        }
        let batch = self.shared.queue.next(BATCH, BATCH_BYTES);
        let has_taken = !batch.is_empty();
        let mut commands = Pipeline::new();
        for write in batch {
            let Some((value, kept)) = (write.make)() else { continue };
            let kept_ms = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX).max(1);
            commands.cmd("SET").arg(write.key).arg(&value[..]).arg("PX").arg(kept_ms);
        }
        if commands.is_empty() {
            return Ok(has_taken);
        }
        let counters = &self.shared.counters;
        let mut link = link.clone();
        let answers = match tokio::time::timeout(RESPONSE, link.ask(Question::Many(&commands))).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(error)) => {
                add(&counters.dropped_writes, commands.len());
                let ends = is_lost(&error);
                return if ends { Err("a write failed".to_owned()) } else { Ok(true) };
            }
            Err(_) => {
                add(&counters.dropped_writes, commands.len());
                return Err("a write is not answered".to_owned());
            }
        };
        let refused: Vec<_> = answers.iter().filter_map(refusal).collect();
        add(&counters.written, answers.len() - refused.len());
        add(&counters.write_errors, refused.len());
        if refused.contains(&"READONLY") {
            return Err("the server became a replica".to_owned());
        }
        if let Some(code) = refused.first() {
            let dropped = self.shared.queue.pause();
            counters.dropped_writes.fetch_add(dropped as u64, Relaxed);
            self.paused_until = Some(Stamp::now().plus(u64::try_from(PAUSE.as_nanos()).unwrap_or(u64::MAX)));
            tracing::warn!(url = %self.connector.url(), code, "redis takes no values; none are written for a while");
            return Ok(false);
        }
        Ok(true)
    }
}

/// The code of an error.
fn refusal(answer: &Value) -> Option<&str> {
    if let Value::ServerError(error) = answer { Some(error.code()) } else { None }
}
