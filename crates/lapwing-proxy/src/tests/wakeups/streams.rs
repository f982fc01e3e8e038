//! What hyper splits off an HTTP/2 connection of a client or a server.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use lapwing_net::simulated::spawn;

/// Runs it until the party leaves: of a client it is the connection itself, which goes on otherwise until its last stream has ended.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) leaves: CancellationToken,
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        spawn(self.leaves.clone().run_until_cancelled_owned(stream));
    }
}
