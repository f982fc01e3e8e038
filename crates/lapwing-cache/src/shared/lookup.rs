//! What is found in the second level, or why nothing is.

use crate::answer::StoredAnswer;
use crate::sealed::{SealRefusal, SharedEpoch};
use lapwing_redis::RedisRefusal;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedMiss {
    /// There is none.
    Absent,
    /// There is one that is older than the request allows, or not good for long enough.
    TooOld,
    /// There is something that is not taken for one.
    Refused(SealRefusal),
    /// It is not known which answers may be given: this process is about to make all forget, or Redis has no epochs yet.
    WithoutEpoch,
    /// Redis did not answer.
    Unanswered(RedisRefusal),
}

/// What was found for a request.
#[derive(Debug)]
pub struct SharedLookup {
    /// The answer.
    pub answer: Result<StoredAnswer, SharedMiss>,
    /// The epoch in which the answer of the upstream may be stored. Without one it must not be.
    pub epoch: Option<SharedEpoch>,
}
