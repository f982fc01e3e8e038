//! The background of the second level: its connection, the epochs that it has to write, and those that others wrote.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::epochs::Epoch;
use super::inner::{Inner, epoch_of, values_of};
use super::keys::EpochSlot;
use lapwing_redis::{RedisCommand, RedisKeeper, RedisPipeline, RedisRefusal, RedisValue};

/// After how long a process knows, at the latest, that another one has forgotten something, while Redis answers.
pub const POLL: Duration = Duration::from_millis(250);
/// How long Redis may take to answer the background.
const PATIENCE: Duration = Duration::from_millis(500);

/// The background of the second level. Without it there is no connection.
#[must_use = "without it there is no connection"]
pub struct SharedKeeper {
    inner: Arc<Inner>,
    keeper: RedisKeeper,
}

impl fmt::Debug for SharedKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeeper").finish_non_exhaustive()
    }
}

impl SharedKeeper {
    pub(crate) fn new(inner: Arc<Inner>, keeper: RedisKeeper) -> Self {
        Self { inner, keeper }
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let Self { inner, keeper } = self;
        tokio::select! {
            () = keeper.run() => {}
            () = tend(&inner) => {}
        }
    }
}

async fn tend(inner: &Inner) {
    let mut complaint = None;
    loop {
        let done = if inner.client.counts().is_up { turn(inner).await } else { Err(RedisRefusal::Away) };
        if let Err(RedisRefusal::Failed(cause)) = &done
            && complaint.as_ref() != Some(cause)
        {
            tracing::warn!(cause, "redis refuses what the shared cache needs: MGET, GET and SET on its keys");
            complaint = Some(cause.clone());
        }
        tokio::select! {
            // what failed is tried again after a while, and not at once
            () = inner.wake.notified(), if done.is_ok() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

async fn turn(inner: &Inner) -> Result<(), RedisRefusal> {
    for (slot, wanted) in inner.epochs.pending() {
        renew(inner, slot, wanted).await?;
    }
    look(inner).await
}

/// Writes another epoch. If that is not answered, it may have been written all the same; then it is replaced once more.
async fn renew(inner: &Inner, slot: EpochSlot, wanted: u64) -> Result<(), RedisRefusal> {
    let (name, epoch) = (inner.names.epoch(slot), rand::random::<Epoch>());
    let mut commands = RedisPipeline::new();
    commands.cmd("GET").arg(&name).cmd("SET").arg(&name).arg(&epoch);
    let mut answers = inner.client.run(&commands, PATIENCE).await?.into_iter();
    let before = answers.next().map(answered).transpose()?.and_then(epoch_of);
    answers.next().map(answered).transpose()?;
    inner.epochs.wrote(slot, wanted, epoch, before);
    Ok(())
}

/// Looks whether others wrote epochs.
async fn look(inner: &Inner) -> Result<(), RedisRefusal> {
    let slots = inner.epochs.used();
    if slots.is_empty() {
        return Ok(());
    }
    let question = inner.epochs.ask_any();
    let mut command = RedisCommand::new();
    command.arg("MGET");
    slots.iter().for_each(|slot| {
        command.arg(inner.names.epoch(*slot));
    });
    let values = values_of(inner.client.run_one(&command, PATIENCE).await?)?;
    let read: Vec<_> = slots.into_iter().zip(values.into_iter().map(epoch_of)).collect();
    inner.learn(question, &read);
    Ok(())
}

/// An answer that is no error.
fn answered(value: RedisValue) -> Result<RedisValue, RedisRefusal> {
    match value {
        RedisValue::ServerError(error) => Err(RedisRefusal::Failed(format!("server error ({})", error.code()))),
        value => Ok(value),
    }
}
