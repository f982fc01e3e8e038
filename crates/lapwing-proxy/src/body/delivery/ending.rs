//! How hyper reads a response body, and what becomes of it if its client leaves.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::ResponseBody;
use crate::body::broken::Cause;
use crate::body::chunk::TrackedChunk;
use crate::body::own::OwnBody;
use crate::body::upstream::UpstreamBody;
use crate::in_flight::InFlight;
use lapwing_ledger::Stamp;
use lapwing_net::Tasks;

/// How long an answer is read on whose client has left.
const LONGEST_READ_OUT: Duration = Duration::from_secs(60);

impl ResponseBody {
    /// Reads it to its end.
    pub(crate) async fn read_out(mut self) {
        let all = async { while let Some(Ok(_)) = self.frame().await {} };
        // who takes longer is given up
        let _ = timeout(LONGEST_READ_OUT, all).await;
    }

    /// Its client leaves: whoever has copies of it gets the rest too.
    fn run_on_without_client(&mut self) {
        let Some(tasks) = self.runs_on.take() else { return };
        // a body may be dropped with its runtime
        if !self.is_ended && self.broken.is_none() && tokio::runtime::Handle::try_current().is_ok() {
            let mut rest = Self::new(std::mem::replace(&mut self.upstream, UpstreamBody::own(OwnBody::default())));
            // copies go on as they began
            (rest.captures, rest.rewrite) = (std::mem::take(&mut self.captures), self.rewrite.take());
            tasks.spawn(rest.read_out());
        }
    }

    /// If its client leaves, it comes to its end all the same, for those who have copies of it.
    pub(crate) fn run_on(&mut self, tasks: &Tasks) {
        self.runs_on = Some(tasks.clone());
    }
}

impl Body for ResponseBody {
    type Data = TrackedChunk<InFlight>;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<TrackedChunk<InFlight>>, Cause>>> {
        let polled = self.poll_next(cx);
        if polled.is_ready() {
            self.upstream.leave();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_end_stream() && !self.has_timing_trailer && self.is_handed()
    }

    fn size_hint(&self) -> SizeHint {
        // over HTTP/2 hyper would look for a `Content-Length` to add, and the upstream's head has what the upstream said
        let is_said = self.rewrite.is_some() || self.in_flight().is_some_and(|in_flight| in_flight.is_multiplexed);
        if self.upstream.is_upstreams() && is_said { SizeHint::default() } else { self.upstream.size_hint() }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.run_on_without_client();
        if let (Some(_), Some(in_flight)) = (&self.broken, self.in_flight()) {
            in_flight.close(Stamp::now()); // the client left, or its connection ended: the response was broken before
        }
        // hyper drops a body that it needs no more of: then all of it has been handed over
        if self.guard.get().is_some() && self.is_end_stream() {
            self.finish();
            self.captures.finish();
        }
    }
}
