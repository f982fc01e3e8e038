//! The recorder of a running Lapwing: one recording at a time, each on a separate thread. `lapwing record`, which asks for it, is in
//! `lapwing_console::record`.
//!
//! A recording is a second tap on the data plane, with its own queue and budget, and a thread that exists only while it runs. It
//! waits for the accounts of its requests, which the aggregator sends, and hands lines to the admin server. Whatever has no room is
//! dropped and counted; requests and shadow targets never wait for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::exchange::{RecordingEnd, RecordingHeader, RecordingLine};
use super::lines::to_line;
use super::redaction::{CompleteJob, Redaction};
use crate::config::Config;
use crate::counters::{ShadowCounters, ShadowDrop};
use crate::pairs::PairHalf;
use crate::repeatable::{JudgedRequest, Repeatable, Standing};
use crate::sampler::Sampler;
use crate::settings::ShadowSettings;
use crate::tap::{RecordingSwitch, RunningRecording, TapBranch, TapParts};
use lapwing_ledger::{PairId, Stamp, clock};
use lapwing_metrics::Labels;
use lapwing_settings::{ConfigHandle, Period, Share, Size, Switch};

/// Sampled requests that may wait for the recorder's thread.
const QUEUE: usize = 1024;
/// Accounts that may wait for it.
const ACCOUNTS: usize = 4096;
/// Lines that may wait for the reader. Few, because each may be as long as two bodies.
const LINES: usize = 4;
/// How often the thread takes what has come.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long a request waits for its account longer than spans are waited for, and how long the last ones have to come to their end.
const ACCOUNT_WAIT_NS: u64 = 3_000_000_000;
/// How long the reader may take nothing.
const READER_TIMEOUT_NS: u64 = 3_000_000_000;
/// How long a recognised request waits for its route to be learnt, in nanoseconds.
const LEARNING_NS: u64 = 60_000_000_000;

/// What is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordOptions {
    /// The share of requests. Default 1%.
    pub sample: Share,
    /// For how long. Default 10 min; at most 24 h.
    pub duration: Period,
    /// How many requests at most. Default 1,000,000.
    pub max_requests: u64,
    /// How many bytes at most. Default 1 GiB.
    pub max_size: Size,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            sample: "1%".parse().unwrap_or_else(|_| unreachable!("a share")),
            duration: Period::from_secs(600),
            max_requests: 1_000_000,
            max_size: Size::mib(1024),
        }
    }
}

/// The lines of a recording as they come; the end of the channel is the end of the recording.
pub type RecordedLines = mpsc::Receiver<Bytes>;

/// The accounts of recorded requests, from the aggregator.
#[derive(Debug)]
pub struct RecordAccounts {
    queue: ArrayQueue<(PairId, PairHalf)>,
    /// How many were lost since the recording began.
    lost: AtomicU64,
}

impl Default for RecordAccounts {
    fn default() -> Self {
        Self { queue: ArrayQueue::new(ACCOUNTS), lost: AtomicU64::new(0) }
    }
}

impl RecordAccounts {
    /// Hands an account over. If they are not taken, the oldest is lost and counted.
    pub fn push(&self, pair: PairId, half: PairHalf) {
        if self.queue.force_push((pair, half)).is_some() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Forgets what is left of an earlier recording.
    fn clear(&self) {
        while self.queue.pop().is_some() {}
        self.lost.store(0, Relaxed);
    }
}

/// Starts recordings.
pub struct Recorder {
    /// Read when a recording starts.
    pub settings: ConfigHandle<ShadowSettings>,
    /// Turns the tap of recordings on.
    pub switch: Arc<RecordingSwitch>,
    /// Where the aggregator sends the accounts of recorded requests.
    pub accounts: Arc<RecordAccounts>,
    /// The names of routes and models.
    pub labels: Arc<Labels>,
    /// What all recordings did not write.
    pub counters: Arc<ShadowCounters>,
    /// Ends a recording when the process drains.
    pub stop: CancellationToken,
}

impl Recorder {
    /// Starts a recording.
    ///
    /// # Errors
    ///
    /// If one runs already, or its thread cannot be started.
    pub fn start(&self, options: RecordOptions) -> Result<RecordedLines, String> {
        let settings = self.settings.load();
        let config = &settings.shadow;
        let limits = TapParts::limits(config, &settings.proxy);
        let parts = TapParts::counted(QUEUE, limits, self.counters.clone(), Arc::default());
        let dropped_before = self.counters.all_dropped();
        let sampled = Config { sample: options.sample, header: Switch::Off, ..config.clone() };
        let branch = TapBranch { parts: parts.clone(), sampler: Sampler::new(&sampled) };
        let running = self.switch.turn_on(branch).ok_or("a recording runs already; there is one at a time")?;
        let (sender, lines) = mpsc::channel(LINES);
        let session = RecordingSession {
            options,
            parts,
            lines: sender,
            accounts: self.accounts.clone(),
            labels: self.labels.clone(),
            redaction: Redaction::new(&settings),
            repeatable: Repeatable::new(config),
            dropped_before,
            max_waiting: config.max_waiting,
            account_wait_ns: settings.attribution.grace.as_nanos().saturating_add(ACCOUNT_WAIT_NS),
            stop: self.stop.clone(),
            began: Stamp::now(),
            under_way: Vec::new(),
            held: Vec::new(),
            complete: FxHashMap::default(),
            known: FxHashMap::default(),
            end: RecordingEnd::default(),
            written_bytes: 0,
        };
        let upstream = settings.upstream.to_string();
        let thread = std::thread::Builder::new().name("lapwing-record".to_owned());
        thread.spawn(move || session.run(running, upstream)).map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(lines)
    }
}

type Completing = Pin<Box<dyn Future<Output = Result<CompleteJob, ShadowDrop>> + Send>>;

/// A recording that runs.
struct RecordingSession {
    options: RecordOptions,
    parts: Arc<TapParts>,
    lines: mpsc::Sender<Bytes>,
    accounts: Arc<RecordAccounts>,
    labels: Arc<Labels>,
    redaction: Redaction,
    repeatable: Repeatable,
    /// What earlier recordings did not write.
    dropped_before: Vec<u64>,
    max_waiting: usize,
    account_wait_ns: u64,
    stop: CancellationToken,
    began: Stamp,
    /// Requests whose body or answer is on its way.
    under_way: Vec<Completing>,
    /// Those that wait for their route to be learnt.
    held: Vec<HeldRecord>,
    /// Those that wait for their account, and since when.
    complete: FxHashMap<PairId, (CompleteJob, Stamp)>,
    /// Accounts that came first, and when.
    known: FxHashMap<PairId, (PairHalf, Stamp)>,
    end: RecordingEnd,
    written_bytes: u64,
}

/// A recognised request whose route is not yet repeatable.
struct HeldRecord {
    job: CompleteJob,
    request: JudgedRequest,
    /// How often learning had begun anew.
    restarts: u64,
    since: Stamp,
}

/// The reader has left, or takes nothing any more.
struct ReaderGone;

impl RecordingSession {
    fn run(mut self, running: RunningRecording, upstream: String) {
        self.accounts.clear();
        let header = RecordingHeader::new(clock::unix_ns(), upstream, self.options.sample.get());
        let recorded = to_line(&header).map_err(|_| ReaderGone).and_then(|line| self.send(line)).and_then(|()| self.record());
        // no further request is copied
        drop(running);
        let ended = recorded.and_then(|reason| {
            self.await_rest()?;
            self.finish(reason)
        });
        let (requests, reason) = (self.end.requests, if ended.is_ok() { &*self.end.reason } else { "the reader left" });
        tracing::info!(requests, reason, "the recording has ended");
    }

    /// Records until there is a reason to end.
    fn record(&mut self) -> Result<&'static str, ReaderGone> {
        tracing::info!(sample = %self.options.sample, duration = %self.options.duration, "requests are being recorded");
        loop {
            std::thread::sleep(POLL_INTERVAL);
            if self.lines.is_closed() {
                return Err(ReaderGone);
            }
            self.poll()?;
            let is_over = self.began.elapsed() >= self.options.duration.as_nanos();
            match () {
                () if self.stop.is_cancelled() => return Ok("shutdown"),
                () if self.end.requests >= self.options.max_requests => return Ok("requests"),
                () if self.is_full() => return Ok("size"),
                () if is_over => return Ok("time"),
                () => {}
            }
        }
    }

    /// Waits for the requests that were under way when it ended.
    fn await_rest(&mut self) -> Result<(), ReaderGone> {
        let until = Stamp::now().plus(self.account_wait_ns);
        while Stamp::now() < until && !(self.under_way.is_empty() && self.complete.is_empty() && self.parts.queue.is_empty()) {
            if self.stop.is_cancelled() || self.is_done() {
                break;
            }
            self.poll()?;
            std::thread::sleep(POLL_INTERVAL);
        }
        for _ in 0..self.under_way.len() + self.parts.queue.len() {
            self.drop_one(ShadowDrop::Cut);
        }
        for _ in 0..std::mem::take(&mut self.held).len() {
            self.drop_one(ShadowDrop::Learning);
        }
        let rest: Vec<PairId> = self.complete.keys().copied().collect();
        rest.into_iter().try_for_each(|pair| self.write(pair))
    }

    /// Takes what has come, and writes what is ready.
    fn poll(&mut self) -> Result<(), ReaderGone> {
        let now = Stamp::now();
        while let Some(job) = self.parts.queue.pop() {
            if self.under_way.len() + self.held.len() + self.complete.len() >= self.max_waiting {
                self.drop_one(ShadowDrop::Waiting);
            } else {
                self.under_way.push(Box::pin(CompleteJob::of(job)));
            }
        }
        while let Some((pair, half)) = self.accounts.queue.pop() {
            self.known.insert(pair, (half, now));
        }
        // the data plane wakes no thread, so each is polled
        let mut at = 0;
        while at < self.under_way.len() {
            match self.under_way[at].as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => at += 1,
                Poll::Ready(done) => {
                    drop(self.under_way.swap_remove(at));
                    match done {
                        Ok(job) => self.judge(job, now),
                        Err(reason) => self.drop_one(reason),
                    }
                }
            }
        }
        self.poll_held(now);
        let is_late = |since: Stamp| now.since(since) > self.account_wait_ns;
        let ready = self.complete.iter().filter(|(pair, (_, since))| self.known.contains_key(pair) || is_late(*since));
        let ready: Vec<PairId> = ready.map(|(pair, _)| *pair).collect();
        let is_held = |pair: &PairId| self.held.iter().any(|held| held.job.pair == *pair);
        self.known.retain(|pair, (_, since)| now.since(*since) <= self.account_wait_ns || is_held(pair));
        ready.into_iter().try_for_each(|pair| self.write(pair))
    }

    /// Decides whether a request that is complete is recorded.
    fn judge(&mut self, job: CompleteJob, now: Stamp) {
        match job.judge(&self.repeatable) {
            Ok((_, Standing::Repeatable)) => drop(self.complete.insert(job.pair, (job, now))),
            Ok((request, Standing::Learning(restarts))) => self.held.push(HeldRecord { job, request, restarts, since: now }),
            Err(reason) => self.drop_one(reason),
        }
    }

    /// Takes the requests whose route is repeatable by now, and drops those that waited too long for it.
    fn poll_held(&mut self, now: Stamp) {
        for held in std::mem::take(&mut self.held) {
            match self.repeatable.standing(&held.request, held.restarts) {
                Ok(Standing::Repeatable) => drop(self.complete.insert(held.job.pair, (held.job, now))),
                Ok(Standing::Learning(_)) if now.since(held.since) <= LEARNING_NS => self.held.push(held),
                Ok(Standing::Learning(_)) => self.drop_one(ShadowDrop::Learning),
                Err(reason) => self.drop_one(reason),
            }
        }
    }

    /// Writes the record of a request that is complete.
    fn write(&mut self, pair: PairId) -> Result<(), ReaderGone> {
        let Some((job, _)) = self.complete.remove(&pair) else { return Ok(()) };
        let account = self.known.remove(&pair).map(|(half, _)| half.account(&self.labels));
        if self.is_done() {
            return Ok(());
        }
        let Some(record) = self.redaction.record(&job, account, self.began) else {
            self.drop_one(ShadowDrop::Unredactable);
            return Ok(());
        };
        // give the memory back before the reader is waited for
        drop(job);
        let Ok(line) = to_line(&RecordingLine::Exchange(Box::new(record))) else { return Ok(()) };
        self.send(line)?;
        self.end.requests += 1;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.written_bytes >= self.options.max_size.get()
    }

    fn is_done(&self) -> bool {
        self.is_full() || self.end.requests >= self.options.max_requests
    }

    fn drop_one(&self, reason: ShadowDrop) {
        self.parts.counters.drop_sampled(reason);
    }

    fn finish(&mut self, reason: &str) -> Result<(), ReaderGone> {
        self.end.reason = reason.to_owned();
        self.end.duration_ns = self.began.elapsed();
        self.end.accounts_lost = self.accounts.lost.load(Relaxed);
        let (now, before) = (self.parts.counters.all_dropped(), &self.dropped_before);
        let since = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
        let dropped = ShadowDrop::ALL.iter().zip(since).filter(|(_, count)| *count > 0);
        self.end.dropped = dropped.map(|(reason, count)| (reason.name().to_owned(), count)).collect();
        let line = to_line(&RecordingLine::End(self.end.clone())).map_err(|_| ReaderGone)?;
        self.send(line)
    }

    /// Hands a line over. A reader that takes nothing for some seconds is given up; meanwhile requests are dropped and counted.
    fn send(&mut self, line: Vec<u8>) -> Result<(), ReaderGone> {
        self.written_bytes += line.len() as u64;
        let mut line = Bytes::from(line);
        let until = Stamp::now().plus(READER_TIMEOUT_NS);
        loop {
            match self.lines.try_send(line) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Full(back)) if Stamp::now() < until => line = back,
                Err(_) => return Err(ReaderGone),
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::SideAccount;

    #[test]
    fn accounts_that_nobody_takes_are_counted_as_lost() {
        let (accounts, labels) = (RecordAccounts::default(), Labels::new(1, 1, 1));
        let half = PairHalf::of_account(&SideAccount::default(), &labels);
        for n in 1..=ACCOUNTS as u64 + 3 {
            accounts.push(PairId::new(n).unwrap(), half.clone());
        }
        assert_eq!((accounts.lost.load(Relaxed), accounts.queue.pop().unwrap().0.get()), (3, 4), "the oldest are gone");
        accounts.clear();
        assert_eq!((accounts.lost.load(Relaxed), accounts.queue.len()), (0, 0));
    }
}
