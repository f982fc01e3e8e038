//! The tasks of clients and servers. In debug builds h2 asserts that resets are written before the last part of a connection is dropped,
//! which a party that leaves does not do: the last part may be the connection, a stream, or a body that somebody reads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures_util::FutureExt;
use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use lapwing_net::simulated;

/// What h2 asserts (`Counts::drop` in `proto/streams/counts.rs`).
const ASSERTED: &str = "assertion failed: !self.has_streams()";

/// Spawns a task of a party that may leave: any panic but h2's is the simulation's.
pub(crate) fn spawn(task: impl Future<Output: 'static> + 'static) {
    simulated::spawn(async move {
        let mut task = Box::pin(task);
        let ended = AssertUnwindSafe(task.as_mut()).catch_unwind().await.map(drop);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(task)));
        [ended, dropped].into_iter().filter_map(Result::err).for_each(tolerate);
    });
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
