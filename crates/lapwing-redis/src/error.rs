//! Why a Redis did not answer.

use redis::RedisError;

/// Why a Redis did not answer. A request then goes on without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisRefusal {
    /// There is no connection; one is being made in the background.
    #[error("there is no connection to redis")]
    Away,
    /// It failed or was late too often, and is tried in the background.
    #[error("redis failed or was late too often")]
    Open,
    /// Its answers take longer than the deadline.
    #[error("redis takes longer than the deadline")]
    Hopeless,
    /// It did not answer by the deadline.
    #[error("redis did not answer by the deadline")]
    Late,
    /// It answered with an error, or the connection ended. The text has no value and no password.
    #[error("redis failed: {0}")]
    Failed(String),
}

/// What kind of error it is, without what was sent or answered: details of errors name keys and users.
pub(crate) fn describe(error: &RedisError) -> String {
    match error.code() {
        Some(code) => format!("{} ({code})", error.category()),
        None => error.category().to_owned(),
    }
}
