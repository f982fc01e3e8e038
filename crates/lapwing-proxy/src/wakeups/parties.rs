//! The tasks of clients and servers. In debug builds h2 asserts that resets are written before the last part of a connection is dropped,
//! which a party that leaves does not do: the last part may be the connection, a stream, or a body that somebody reads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use lapwing_net::simulated;

/// What h2 asserts (`Counts::drop` in `proto/streams/counts.rs`).
const ASSERTED: &str = "assertion failed: !self.has_streams()";

/// Spawns a task of a party that may leave: any panic but h2's is the simulation's.
pub(crate) fn spawn(task: impl Future + 'static) {
    simulated::spawn(Party(Some(Box::pin(task))));
}

/// A task, to its end or to that of the simulation.
struct Party<F>(Option<Pin<Box<F>>>);

impl<F> Party<F> {
    fn end(&mut self) {
        if let Some(task) = self.0.take()
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(task)))
        {
            tolerate(panic);
        }
    }
}

impl<F: Future> Future for Party<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.0 else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx).is_pending())) {
            Ok(true) => return Poll::Pending,
            Ok(false) => {}
            Err(panic) => tolerate(panic),
        }
        self.end();
        Poll::Ready(())
    }
}

impl<F> Drop for Party<F> {
    fn drop(&mut self) {
        self.end();
    }
}

fn tolerate(panic: Box<dyn Any + Send>) {
    if panic.downcast_ref::<&str>() != Some(&ASSERTED) {
        resume_unwind(panic);
    }
}

/// Runs what hyper splits off an HTTP/2 connection, until its party leaves: of a client that is the connection itself, which goes on
/// otherwise until its last stream has ended.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) leaves: CancellationToken,
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        spawn(self.leaves.clone().run_until_cancelled_owned(stream));
    }
}
