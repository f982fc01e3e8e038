//! Retries, with paused time and without a network.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::collector::{Encoding, Signal};

/// Answers by the script, then never.
struct Script {
    answers: Mutex<VecDeque<Result<(), SendError>>>,
    tried: Mutex<Vec<Duration>>,
    start: Instant,
}

impl Script {
    #[allow(clippy::disallowed_methods, reason = "paused time")]
    fn new(answers: impl IntoIterator<Item = Result<(), SendError>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()), tried: Mutex::default(), start: Instant::now() }
    }
}

impl Transport for Script {
    async fn send(&self, _: &ExportMessage) -> Result<Bytes, SendError> {
        self.tried.lock().push(self.start.elapsed());
        let next = self.answers.lock().pop_front();
        match next {
            Some(answer) => answer.map(|()| Bytes::new()),
            None => std::future::pending().await,
        }
    }
}

fn retryable(after: Option<u64>) -> Result<(), SendError> {
    Err(SendError::Retryable { reason: "busy".to_owned(), after: after.map(Duration::from_secs) })
}

/// Sends one message: whether the collector took it, or it was lost.
async fn run(script: &Script, attempts: u32, closing: &CancellationToken) -> (u64, u64) {
    let message = ExportMessage { signal: Signal::Logs, encoding: Encoding::Json, body: Bytes::new() };
    let sent = send(&message, script, &RetryPolicy::new(attempts, Duration::from_secs(10)), closing).await;
    (u64::from(sent.is_ok()), u64::from(sent.is_err()))
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_after_growing_pauses() {
    let script = Script::new([retryable(None), retryable(None), Ok(())]);
    assert_eq!(run(&script, 4, &CancellationToken::new()).await, (1, 0));
    let tried = script.tried.lock().clone();
    let ms = |range: std::ops::RangeInclusive<u64>, d: Duration| range.contains(&(d.as_millis() as u64));
    assert_eq!(tried.len(), 3);
    assert!(ms(250..=751, tried[1]) && ms(500..=1502, tried[2] - tried[1]), "{tried:?}");
}

#[tokio::test(start_paused = true)]
async fn after_the_last_attempt_it_is_lost_and_so_is_what_will_never_work() {
    let script = Script::new([retryable(None), retryable(None), retryable(None), Ok(())]);
    assert_eq!(run(&script, 3, &CancellationToken::new()).await, (0, 1));
    assert_eq!(script.tried.lock().len(), 3);
    let script = Script::new([Err(SendError::Permanent("bad".to_owned())), Ok(())]);
    assert_eq!(run(&script, 3, &CancellationToken::new()).await, (0, 1));
    assert_eq!(script.tried.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_pause_that_is_asked_for_is_kept_up_to_a_minute() {
    let script = Script::new([retryable(Some(7)), retryable(Some(100_000)), Ok(())]);
    assert_eq!(run(&script, 4, &CancellationToken::new()).await, (1, 0));
    let tried = script.tried.lock().clone();
    assert_eq!((tried[1].as_secs(), (tried[2] - tried[1]).as_secs()), (7, 60));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_costs_ten_seconds_an_attempt() {
    let script = Script::new([]);
    assert_eq!(run(&script, 2, &CancellationToken::new()).await, (0, 1));
    assert_eq!(script.tried.lock().len(), 2);
    assert!((20..=22).contains(&script.start.elapsed().as_secs()), "{:?}", script.start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_the_queue_closes_a_pause_ends_and_it_is_tried_once_more() {
    let script = Script::new([retryable(Some(50)), retryable(None), Ok(())]);
    let closing = CancellationToken::new();
    let (counted, ()) = tokio::join!(run(&script, 10, &closing), async {
        sleep(Duration::from_secs(5)).await;
        closing.cancel();
    });
    assert_eq!(counted, (0, 1));
    assert_eq!(script.tried.lock().iter().map(Duration::as_secs).collect::<Vec<_>>(), [0, 5]);
    // and one that is closed already hurries
    let script = Script::new([]);
    assert_eq!(run(&script, 10, &closing).await, (0, 1));
    assert_eq!(script.start.elapsed().as_secs(), 2);
}

#[test]
fn pauses_double_up_to_a_bound() {
    let policy = RetryPolicy::new(10, Duration::from_secs(10));
    let pauses: Vec<_> = (1..=9).map(|failed| policy.pause(failed, None, 0.5).as_millis()).collect();
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    assert_eq!(policy.pause(u32::MAX, None, 0.0), LONGEST_PAUSE / 2);
}
