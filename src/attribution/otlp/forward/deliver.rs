//! Bringing one message to the collector: tried again after what may pass, with growing pauses, and not for ever.
//!
//! Pauses double from half a second to thirty, each cut or stretched by up to half by chance, so that many sidecars do not
//! come back at once; a pause that the collector asks for is kept, up to a minute.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::parcel::Parcel;

/// One attempt may take this long.
const ATTEMPT: Duration = Duration::from_secs(10);
/// One attempt, once the queue is closed.
const LAST_ATTEMPT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// How often and how patiently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    attempts: u32,
}

impl Policy {
    /// Tries `attempts` times, at least once.
    pub(super) const fn new(attempts: u32) -> Self {
        Self { attempts }
    }

    /// Behind the `failed`th failure (from 1); `chance` is from 0 to 1.
    fn pause(&self, failed: u32, asked: Option<Duration>, chance: f64) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
        doubled.mul_f64(0.5 + chance).max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }
}

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(super) enum Setback {
    /// It may work later; perhaps the collector says when.
    Passing { reason: String, after: Option<Duration> },
    /// It will never work.
    Lasting(String),
}

/// Whatever can try once.
pub(super) trait Carry: Sync {
    /// Tries once.
    fn carry(&self, parcel: &Parcel) -> impl Future<Output = Result<(), Setback>> + Send;
}

/// Brings `parcel` or loses it; either is counted. Once `closing` is cancelled it is tried once more, without a pause.
pub(super) async fn deliver(mut parcel: Parcel, by: &impl Carry, policy: &Policy, closing: &CancellationToken) {
    let mut failed = 0;
    loop {
        let is_last = closing.is_cancelled();
        let setback = match attempt(&parcel, by, closing).await {
            Ok(()) => return parcel.fate.forwarded(),
            Err(setback) => setback,
        };
        failed += 1;
        let signal = parcel.signal;
        let (reason, after) = match setback {
            Setback::Passing { reason, after } if failed < policy.attempts && !is_last => (reason, after),
            Setback::Passing { reason, .. } | Setback::Lasting(reason) => {
                tracing::warn!(?signal, %reason, failed, "an OTLP message could not be passed on and is lost");
                return;
            }
        };
        let pause = policy.pause(failed, after, rand::random());
        tracing::debug!(?signal, %reason, failed, ?pause, "an OTLP message will be passed on later");
        tokio::select! {
            () = sleep(pause) => {}
            () = closing.cancelled() => {}
        }
    }
}

async fn attempt(parcel: &Parcel, by: &impl Carry, closing: &CancellationToken) -> Result<(), Setback> {
    let hurried = async {
        closing.cancelled().await;
        sleep(LAST_ATTEMPT).await;
    };
    let elapsed = || Setback::Passing { reason: "the collector did not answer in time".to_owned(), after: None };
    tokio::select! {
        done = by.carry(parcel) => done,
        () = sleep(ATTEMPT) => Err(elapsed()),
        () = hurried => Err(elapsed()),
    }
}

#[cfg(test)]
mod tests;
