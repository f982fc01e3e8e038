//! When a client's connection ends although the client would go on: Lapwing stops, or there is no upstream to carry its requests to.
//!
//! A connection without an upstream ends with its next answer, which says so. One that is idle has a moment for one more request, so that the
//! request does not meet the end on its way; then it is closed, as the upstream would have closed its own.

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::proxy::connection::SocketMeter;

/// How long an idle connection stays open for one more request.
const GRACE: Duration = Duration::from_secs(1);

/// What ends a client's connection.
pub(super) struct Ends {
    /// Lapwing stops.
    pub(super) stop: CancellationToken,
    /// The upstream has gone.
    pub(super) goodbye: CancellationToken,
}

pin_project! {
    /// The end of one connection, as it comes.
    pub(super) struct End<'a> {
        #[pin]
        stopping: WaitForCancellationFuture<'a>,
        #[pin]
        leaving: WaitForCancellationFuture<'a>,
        is_stopping: bool,
        is_leaving: bool,
        // rare, and large
        grace: Option<Pin<Box<Sleep>>>,
    }
}

impl<'a> End<'a> {
    pub(super) fn of(ends: &'a Ends) -> Self {
        let (stopping, leaving) = (ends.stop.cancelled(), ends.goodbye.cancelled());
        Self { stopping, leaving, is_stopping: false, is_leaving: false, grace: None }
    }

    /// Looks whether the connection is to end; the task of `cx` is woken when it is.
    pub(super) fn look(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = self.project();
        *this.is_stopping = *this.is_stopping || this.stopping.poll(cx).is_ready();
        *this.is_leaving = *this.is_leaving || this.leaving.poll(cx).is_ready();
    }

    /// Whether the connection is to end.
    pub(super) const fn is_told(&self) -> bool {
        self.is_stopping || self.is_leaving
    }

    /// Whether a connection that is to end is to be told now. One that has carried nothing yet stays for its first request.
    pub(super) fn is_due(self: Pin<&mut Self>, cx: &mut Context<'_>, meter: &SocketMeter) -> bool {
        let this = self.project();
        if *this.is_stopping || !*this.is_leaving {
            return *this.is_stopping;
        }
        let is_multiplexed = meter.is_multiplexed.load(Relaxed);
        if !meter.has_carried() || (!is_multiplexed && meter.first_read().is_some() && !is_answering(meter)) {
            return false;
        }
        is_multiplexed || is_answering(meter) || {
            let grace = this.grace.get_or_insert_with(|| Box::pin(sleep(GRACE)));
            grace.as_mut().poll(cx) == Poll::Ready(())
        }
    }
}

/// Whether a request is under way.
pub(super) fn is_answering(meter: &SocketMeter) -> bool {
    meter.open.load(Relaxed) > 0
}
