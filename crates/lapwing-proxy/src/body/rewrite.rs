//! Removes from a response what its amended request caused. It stands between the upstream's frames, which the reader of
//! bodies sees unchanged, and the client. On a fault the rest passes unchanged, and the fault is counted.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;

use lapwing_metrics::{Counter, Counters};
use lapwing_net::error_text;
use lapwing_protocol::amend::{UsageRemover, UsageStyle, UsageStyleDetector, without_meta_info};

/// The largest response that is gathered to be rewritten, in bytes.
pub(crate) const MAX_GATHERED_BYTES: usize = 4 << 20;

/// A rewrite of one response.
#[derive(Debug)]
pub(crate) struct ResponseRewrite {
    counters: Arc<Counters>,
    work: Work,
    out: VecDeque<Frame<Bytes>>,
    is_over: bool,
    length: Option<u64>,
}

#[derive(Debug)]
enum Work {
    /// Cuts usage out of a stream.
    Cut(UsageRemover),
    /// Passes everything, and learns.
    Learn(UsageStyleDetector, OnLearnt),
    /// Gathers the body, to cut `meta_info` out of it.
    Gather(Vec<Bytes>, usize),
    /// Passes everything.
    Pass,
}

/// Takes what was learnt.
struct OnLearnt(Box<dyn FnOnce(UsageStyle) + Send>);

impl std::fmt::Debug for OnLearnt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnLearnt")
    }
}

impl ResponseRewrite {
    fn new(counters: Arc<Counters>, work: Work) -> Self {
        Self { counters, work, out: VecDeque::new(), is_over: false, length: None }
    }

    /// Cuts usage out of a stream that was asked for it, as the server's `style` requires.
    pub(crate) fn cut_usage(counters: Arc<Counters>, style: UsageStyle) -> Self {
        Self::new(counters, Work::Cut(UsageRemover::new(style)))
    }

    /// Changes nothing, and tells `on_learnt` the server's style from a stream that was not asked for usage.
    pub(crate) fn learn_usage_style(counters: Arc<Counters>, on_learnt: impl FnOnce(UsageStyle) + Send + 'static) -> Self {
        Self::new(counters, Work::Learn(UsageStyleDetector::default(), OnLearnt(Box::new(on_learnt))))
    }

    /// Cuts `meta_info` out of the choices.
    pub(crate) fn cut_meta_info(counters: Arc<Counters>) -> Self {
        Self::new(counters, Work::Gather(Vec::new(), 0))
    }

    /// Takes a frame from the upstream; `last` if the body is over with it.
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
            Work::Learn(learner, _) => {
                let learnt = learner.push(&bytes);
                if !matches!(learnt, Ok(None))
                    && let Work::Learn(_, on_learnt) = std::mem::replace(&mut self.work, Work::Pass)
                    && let Ok(Some(style)) = learnt
                {
                    (on_learnt.0)(style);
                }
                self.put(bytes);
            }
            Work::Gather(pieces, n) => {
                *n += bytes.len();
                let is_too_large = *n > MAX_GATHERED_BYTES;
                pieces.push(bytes);
                if is_too_large {
                    self.release();
                    self.fail(&"is too large");
                }
            }
            Work::Pass => self.put(bytes),
        }
    }

    /// The upstream's body is over: `whole`, or broken off.
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

    /// Passes the gathered pieces on unchanged.
    fn release(&mut self) {
        if let Work::Gather(pieces, _) = std::mem::replace(&mut self.work, Work::Pass) {
            pieces.into_iter().for_each(|piece| self.put(piece));
        }
    }

    fn fail(&mut self, reason: &dyn std::fmt::Display) {
        tracing::debug!(
            reason = error_text(reason),
            "a response passes unchanged: what its amended request caused cannot be cut out"
        );
        self.counters.bump(Counter::AmendFailed);
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

    /// Returns whether the body is being gathered: its length is not known before it is whole.
    pub(crate) fn is_gathering(&self) -> bool {
        matches!(self.work, Work::Gather(..))
    }

    /// The body's length in bytes, if it was gathered and cut.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns whether the upstream's body is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether nothing is held back.
    pub(crate) fn is_empty(&self) -> bool {
        let holds = match &self.work {
            Work::Cut(cutter) => !cutter.is_empty(),
            Work::Gather(..) => true,
            Work::Learn(..) | Work::Pass => false,
        };
        self.out.is_empty() && !holds
    }
}
