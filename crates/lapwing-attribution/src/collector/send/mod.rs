//! Sends one message to the collector, and retries a bounded number of times, with growing pauses.
//!
//! Pauses double from half a second to thirty seconds. Each is made shorter or longer by up to half, at random, so that many
//! sidecars do not retry at once. A pause that the collector asks for is honoured, up to a minute.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use bytes::Bytes;

use super::ExportMessage;
use lapwing_net::error_text;

/// For one attempt once the queue is closed.
const LAST_ATTEMPT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// How often a message is sent, and after which pauses.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    attempts: u32,
    /// For one attempt.
    timeout: Duration,
}

impl RetryPolicy {
    /// Sends a message `attempts` times at most, and once at least. Each attempt may take `timeout`.
    #[must_use]
    pub const fn new(attempts: u32, timeout: Duration) -> Self {
        Self { attempts, timeout }
    }

    /// The pause after the `failed`th failure (from 1); `chance` is from 0 to 1.
    fn pause(&self, failed: u32, asked: Option<Duration>, chance: f64) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
        doubled.mul_f64(0.5 + chance).max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum SendError {
    /// Another attempt may succeed, after the pause that the collector asks for, if it does.
    Retryable {
        /// What happened.
        reason: String,
        /// The pause that the collector asks for.
        after: Option<Duration>,
    },
    /// No further attempt will succeed.
    Permanent(String),
}

/// Makes one attempt to send a message.
pub trait Transport: Sync {
    /// Sends `message` once. Returns the body of the collector's answer.
    fn send(&self, message: &ExportMessage) -> impl Future<Output = Result<Bytes, SendError>> + Send;
}

/// Sends `message` until the collector takes it, and returns the body of its answer. Once `closing` is cancelled, one more attempt is
/// made, without a pause, of two seconds at most.
///
/// # Errors
///
/// Why the last attempt failed, after so many that `policy` allows no further one. It may quote the collector.
pub async fn send(
    message: &ExportMessage,
    transport: &impl Transport,
    policy: &RetryPolicy,
    closing: &CancellationToken,
) -> Result<Bytes, String> {
    let mut failed = 0;
    loop {
        let is_last = closing.is_cancelled();
        let error = match attempt(message, transport, policy.timeout, closing).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        failed += 1;
        let signal = message.signal;
        let (reason, after) = match error {
            SendError::Retryable { reason, after } if failed < policy.attempts && !is_last => (reason, after),
            SendError::Retryable { reason, .. } | SendError::Permanent(reason) => {
                return Err(format!("{} (attempts: {failed})", error_text(&reason)));
            }
        };
        let pause = policy.pause(failed, after, rand::random());
        let reason = error_text(&reason);
        tracing::debug!(?signal, reason, failed, ?pause, "cannot send an OTLP message yet; it will be sent again");
        tokio::select! {
            () = sleep(pause) => {}
            () = closing.cancelled() => {}
        }
    }
}

async fn attempt(
    message: &ExportMessage,
    transport: &impl Transport,
    timeout: Duration,
    closing: &CancellationToken,
) -> Result<Bytes, SendError> {
    let hurried = async {
        closing.cancelled().await;
        sleep(LAST_ATTEMPT).await;
    };
    let elapsed = || SendError::Retryable { reason: "the collector did not answer in time".to_owned(), after: None };
    tokio::select! {
        done = transport.send(message) => done,
        () = sleep(timeout) => Err(elapsed()),
        () = hurried => Err(elapsed()),
    }
}

#[cfg(test)]
mod tests;
