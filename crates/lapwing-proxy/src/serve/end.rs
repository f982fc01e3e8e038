//! When a client's connection ends although the client would go on: Lapwing stops, its pod is taken away, or there is no upstream to carry its
//! requests to.
//!
//! A connection of one of the latter two ends with its next answer, which says so. Over HTTP/2 the end is announced when no answer is under way, or
//! one has failed; at once only if the upstream did the same: some clients give up what is under way when they are told. One that is idle has a moment for one more request, so that the
//! request does not meet the end on its way; then it is closed, as the upstream would have closed its own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::connection::SocketMeter;
use crate::health::UpstreamHealth;

/// How long an idle connection stays open for one more request.
const GRACE: Duration = Duration::from_secs(1);

/// What ends a client's connection.
pub(crate) struct Ends {
    /// Lapwing stops.
    pub(crate) stop: CancellationToken,
    /// Clients are to go elsewhere, while it still serves.
    pub(crate) leave: CancellationToken,
    /// The upstream has gone.
    pub(crate) goodbye: CancellationToken,
    pub(crate) health: Arc<UpstreamHealth>,
}

pin_project! {
    /// The end of one connection, as it comes.
    pub(crate) struct End<'a> {
        #[pin]
        stopping: WaitForCancellationFuture<'a>,
        #[pin]
        leaving: WaitForCancellationFuture<'a>,
        #[pin]
        upstream_leaving: WaitForCancellationFuture<'a>,
        is_stopping: bool,
        is_leaving: bool,
        health: &'a UpstreamHealth,
        // rare, and large
        grace: Option<Pin<Box<Sleep>>>,
    }
}

impl<'a> End<'a> {
    pub(crate) fn of(ends: &'a Ends) -> Self {
        let (stopping, leaving, upstream_leaving) = (ends.stop.cancelled(), ends.leave.cancelled(), ends.goodbye.cancelled());
        Self { stopping, leaving, upstream_leaving, is_stopping: false, is_leaving: false, health: &ends.health, grace: None }
    }

    /// Looks whether the connection is to end; the task of `cx` is woken when it is.
    pub(crate) fn poll_signals(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = self.project();
        *this.is_stopping = *this.is_stopping || this.stopping.poll(cx).is_ready();
        // both are asked, so that both wake
        let (leaves, upstream_leaves) = (this.leaving.poll(cx).is_ready(), this.upstream_leaving.poll(cx).is_ready());
        *this.is_leaving = *this.is_leaving || leaves || upstream_leaves;
    }

    /// Whether the connection is to end.
    pub(crate) const fn is_told(&self) -> bool {
        self.is_stopping || self.is_leaving
    }

    /// Whether a connection that is to end is to be told now. One that has carried nothing yet stays for its first request.
    pub(crate) fn is_due(self: Pin<&mut Self>, cx: &mut Context<'_>, meter: &SocketMeter) -> bool {
        let this = self.project();
        if *this.is_stopping || !*this.is_leaving {
            return *this.is_stopping;
        }
        if !meter.has_carried() {
            return false;
        }
        if meter.is_multiplexed.load(Relaxed) {
            return !is_answering(meter) || meter.has_failed.load(Relaxed) || this.health.is_told_at_once();
        }
        // the beginning of a request is there
        if meter.first_read().is_some() && !is_answering(meter) {
            return false;
        }
        is_answering(meter) || {
            let grace = this.grace.get_or_insert_with(|| Box::pin(sleep(GRACE)));
            grace.as_mut().poll(cx) == Poll::Ready(())
        }
    }
}

/// Whether a request is under way.
pub(crate) fn is_answering(meter: &SocketMeter) -> bool {
    meter.open.load(Relaxed) > 0
}
