//! What the data plane's side of the second level and its background share.

use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::Notify;

use super::counts::{SharedCounters, bump};
use super::epochs::{Epoch, EpochQuestion, Epochs, SharedScope};
use super::keys::{EpochSlot, SharedNames};
use crate::sealed::AnswerSealer;
use lapwing_redis::{RedisClient, RedisRefusal, RedisValue};
use lapwing_settings::RedisDeadline;

/// What is done when another process has forgotten answers.
pub(crate) type OnForgotten = Box<dyn Fn(SharedScope) + Send + Sync>;

/// What data plane and background share.
pub(crate) struct Inner {
    pub(crate) client: RedisClient,
    pub(crate) names: SharedNames,
    pub(crate) epochs: Epochs,
    pub(crate) counters: SharedCounters,
    /// Wakes the background: an epoch is to be written.
    pub(crate) wake: Notify,
    pub(crate) sealer: AnswerSealer,
    pub(crate) deadline: RedisDeadline,
    pub(crate) max_entry: AtomicU64,
    pub(crate) on_forgotten: OnForgotten,
}

impl Inner {
    /// Notes the epochs that were read, and says what others have forgotten. Whether all of them may be used.
    pub(crate) fn learn(&self, question: EpochQuestion, read: &[(EpochSlot, Option<Epoch>)]) -> bool {
        let mut forgotten = Vec::new();
        // each of them is to be learnt
        let usable = read.iter().filter(|(slot, epoch)| self.epochs.learn(question, *slot, *epoch, &mut forgotten)).count();
        for scope in forgotten {
            bump(&self.counters.renewed_elsewhere);
            (self.on_forgotten)(scope);
        }
        if usable < read.len() {
            self.wake.notify_one();
        }
        usable == read.len()
    }
}

/// The values of an `MGET`.
pub(crate) fn values_of(answered: RedisValue) -> Result<Vec<RedisValue>, RedisRefusal> {
    match answered {
        RedisValue::Array(values) => Ok(values),
        RedisValue::ServerError(error) => Err(RedisRefusal::Failed(format!("server error ({})", error.code()))),
        _ => Err(RedisRefusal::Failed("an answer of another form".to_owned())),
    }
}

pub(crate) fn bytes_of(value: RedisValue) -> Option<Bytes> {
    if let RedisValue::BulkString(bytes) = value { Some(Bytes::from(bytes)) } else { None }
}

/// An epoch. What has another length is none.
pub(crate) fn epoch_of(value: RedisValue) -> Option<Epoch> {
    bytes_of(value).and_then(|bytes| Epoch::try_from(&bytes[..]).ok())
}
