//! Undoes in a response what its request was changed for: between the upstream's frames, which the reader of bodies
//! sees as they are, and the client. What goes wrong lets the rest pass as it comes, and is counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use bytes::Bytes;
use http_body::Frame;

use crate::metrics::Counter;
use crate::protocol::amend::{CompletionsRoute, UsageRemover, UsageStyle, UsageStyleDetector, without_meta_info};
use crate::proxy::exchange::in_flight::Recorder;

/// The largest response that is put together to be cut, in bytes.
pub(crate) const MAX_WHOLE_BYTES: usize = 4 << 20;

/// What is known of the upstream's streams, by route.
#[derive(Debug, Default)]
pub(crate) struct Habits([AtomicU8; CompletionsRoute::COUNT]);

impl Habits {
    /// What the streams of `route` are like; `None` until one was seen that had not been asked for usage.
    pub(crate) fn get(&self, route: CompletionsRoute) -> Option<UsageStyle> {
        match self.0.get(route.index())?.load(Relaxed) {
            1 => Some(UsageStyle::Plain),
            2 => Some(UsageStyle::Marked),
            3 => Some(UsageStyle::Unasked),
            _ => None,
        }
    }

    fn set(&self, route: CompletionsRoute, habit: UsageStyle) {
        if let Some(known) = self.0.get(route.index()) {
            known.store(habit as u8 + 1, Relaxed);
        }
    }
}

/// A response on its way through.
#[derive(Debug)]
pub(crate) struct Undo {
    recorder: Arc<Recorder>,
    work: Work,
    out: VecDeque<Frame<Bytes>>,
    is_over: bool,
    length: Option<u64>,
}

#[derive(Debug)]
enum Work {
    /// Cuts usage out of a stream.
    Cut(UsageRemover),
    /// Passes all, and learns.
    Learn(UsageStyleDetector, CompletionsRoute),
    /// Puts the body together, to cut `meta_info` out of it.
    Gather(Vec<Bytes>, usize),
    /// Passes all.
    Pass,
}

impl Undo {
    fn new(recorder: Arc<Recorder>, work: Work) -> Self {
        Self { recorder, work, out: VecDeque::new(), is_over: false, length: None }
    }

    /// Takes usage out of a stream that was asked for it, of a server of that habit.
    pub(crate) fn usage(recorder: Arc<Recorder>, habit: UsageStyle) -> Self {
        Self::new(recorder, Work::Cut(UsageRemover::new(habit)))
    }

    /// Learns the server's habit from a stream that was not asked for usage, and changes nothing.
    pub(crate) fn learning(recorder: Arc<Recorder>, route: CompletionsRoute) -> Self {
        Self::new(recorder, Work::Learn(UsageStyleDetector::default(), route))
    }

    /// Takes `meta_info` out of the choices.
    pub(crate) fn meta_info(recorder: Arc<Recorder>) -> Self {
        Self::new(recorder, Work::Gather(Vec::new(), 0))
    }

    /// Takes a frame of the upstream's, its `last` perhaps.
    pub(crate) fn push(&mut self, frame: Frame<Bytes>, last: bool) {
        match frame.into_data() {
            Ok(bytes) => self.take(bytes),
            Err(trailers) => {
                self.end(true);
                self.out.push_back(trailers);
            }
        }
        if last {
            self.end(true);
        }
    }

    fn take(&mut self, bytes: Bytes) {
        match &mut self.work {
            Work::Cut(cutter) => {
                let (passed, fault) = cutter.push(&bytes);
                self.put(passed);
                if let Some(fault) = fault {
                    self.fail(&fault);
                }
            }
            Work::Learn(learner, route) => {
                let learnt = learner.push(&bytes);
                if let Ok(Some(habit)) = learnt {
                    tracing::debug!(?route, ?habit, "learnt how the upstream streams");
                    self.recorder.habits.set(*route, habit);
                }
                if !matches!(learnt, Ok(None)) {
                    self.work = Work::Pass;
                }
                self.put(bytes);
            }
            Work::Gather(pieces, n) => {
                *n += bytes.len();
                let is_too_large = *n > MAX_WHOLE_BYTES;
                pieces.push(bytes);
                if is_too_large {
                    self.release();
                    self.fail(&"is too large");
                }
            }
            Work::Pass => self.put(bytes),
        }
    }

    /// The upstream's body is over, and `whole` or broken off.
    pub(crate) fn end(&mut self, whole: bool) {
        self.is_over = true;
        match &mut self.work {
            Work::Cut(cutter) => {
                let rest = cutter.end();
                self.put(rest);
                self.work = Work::Pass;
            }
            Work::Gather(pieces, _) if whole => {
                let body = pieces.concat();
                match without_meta_info(&body) {
                    Ok(Some(cut)) => {
                        self.work = Work::Pass;
                        self.length = Some(cut.len() as u64);
                        self.put(cut.into());
                    }
                    Ok(None) => self.release(),
                    Err(reason) => {
                        self.release();
                        self.fail(&reason);
                    }
                }
            }
            Work::Gather(..) => self.release(),
            Work::Learn(..) | Work::Pass => {}
        }
    }

    /// Lets go what was put together, as it came.
    fn release(&mut self) {
        if let Work::Gather(pieces, _) = std::mem::replace(&mut self.work, Work::Pass) {
            pieces.into_iter().for_each(|piece| self.put(piece));
        }
    }

    fn fail(&mut self, reason: &dyn std::fmt::Display) {
        tracing::debug!(%reason, "a response is not cut");
        self.recorder.counters.bump(Counter::AmendFailed);
        self.work = Work::Pass;
    }

    fn put(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.out.push_back(Frame::data(bytes));
        }
    }

    /// The next frame for the client.
    pub(crate) fn pop(&mut self) -> Option<Frame<Bytes>> {
        if self.is_gathering() { None } else { self.out.pop_front() }
    }

    /// Whether the body is being put together: the length is not known before it is whole.
    pub(crate) fn is_gathering(&self) -> bool {
        matches!(self.work, Work::Gather(..))
    }

    /// The body's length in bytes, where it was cut.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether the upstream's body has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether nothing is held back.
    pub(crate) fn is_empty(&self) -> bool {
        let holds = match &self.work {
            Work::Cut(cutter) => !cutter.is_empty(),
            Work::Gather(..) => true,
            Work::Learn(..) | Work::Pass => false,
        };
        self.out.is_empty() && !holds
    }
}
