//! The accept loop: bounds connections, pauses when the system has no file descriptors left, and ends when a token is cancelled.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::descriptors::{client_connections, descriptors};
use super::listener::Listener;
use super::socket::Socket;
use super::tasks::Tasks;
use super::throttle::WarningThrottle;

use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};

#[cfg(test)]
mod tests;

/// How long a connection waits before room is asked for again.
const ROOM_RETRY: Duration = Duration::from_millis(50);

static WARNINGS: WarningThrottle = WarningThrottle::new();

/// The bounds of an accept loop.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections at once; one more is accepted and waits for room, further ones wait in the listener's backlog. Default: no bound.
    pub max_connections: Option<usize>,
    /// The pause after a failed accept. Nearly always the process is out of file descriptors, and ending connections free
    /// some. Default: 50 ms.
    pub backoff: Duration,
}

impl Default for AcceptLimits {
    fn default() -> Self {
        Self { max_connections: None, backoff: Duration::from_millis(50) }
    }
}

/// An accepted connection.
#[derive(Debug)]
pub struct Accepted {
    /// The byte stream.
    pub socket: Socket,
    /// The other end.
    pub peer: SocketAddr,
    /// The connection's place among [`AcceptLimits::max_connections`]; the next one is accepted when it is dropped.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// What an accept loop reports to its owner.
pub trait AcceptObserver: Sync {
    /// A connection begins to wait, because there are [`AcceptLimits::max_connections`].
    fn waits(&self) {}
    /// A connection waits: one that is idle should end. Called again while it waits.
    fn full(&self) {}
    /// A connection that waited has its place.
    fn admitted(&self) {}
    /// A connection could not be accepted, for lack of file descriptors or memory.
    fn failed(&self) {}
}

/// Clients of the data plane.
impl AcceptObserver for Counters {
    fn waits(&self) {
        self.bump(Counter::ClientsWaited);
        self.raise(Counter::ClientsWaiting);
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            let (connections, open_files) = (client_connections(), descriptors());
            tracing::warn!(
                connections,
                open_files,
                "clients have their share of this process's file descriptors, and further connections wait: raise the limit on open files \
                 (ulimit -n)"
            );
        });
    }

    fn admitted(&self) {
        self.sub(Counter::ClientsWaiting, 1);
    }

    fn failed(&self) {
        self.bump(Counter::AcceptsFailed);
    }
}

/// Accepts connections until `stop` is cancelled, runs `connection` for each in `tasks`, and closes the listener. Then the
/// caller drains: [`Tasks::finished`] waits for the connections, which must check `stop` themselves ([`until_stopped`]).
///
/// [`until_stopped`]: super::until_stopped
pub async fn accept<F>(
    mut listener: impl Listener,
    limits: AcceptLimits,
    tasks: &Tasks,
    stop: &CancellationToken,
    observer: &impl AcceptObserver,
    mut connection: impl FnMut(Accepted) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let room = limits.max_connections.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
    let mut stopping = pin!(stop.cancelled());
    loop {
        let error = tokio::select! {
            biased;
            () = &mut stopping => break,
            accepted = next(&mut listener, room.as_ref(), observer) => match accepted {
                Ok(accepted) => {
                    tasks.spawn(connection(accepted));
                    continue;
                }
                Err(error) => error,
            },
        };
        if is_of_the_peer(&error) {
            continue;
        }
        observer.failed();
        if let Some(held_back) = WARNINGS.admit(Stamp::now()) {
            tracing::warn!(%error, backoff = ?limits.backoff, held_back, "cannot accept a connection");
        }
        tokio::select! {
            biased;
            () = &mut stopping => break,
            () = sleep(limits.backoff) => {}
        }
    }
}

async fn next(
    listener: &mut impl Listener,
    room: Option<&Arc<Semaphore>>,
    observer: &impl AcceptObserver,
) -> io::Result<Accepted> {
    let (socket, peer) = listener.accept().await?;
    let permit = match room {
        Some(room) => wait_for_room(room, observer).await,
        None => None,
    };
    Ok(Accepted { socket, peer, permit })
}

/// Waits for a place; `None` only if the semaphore were closed, which it never is.
async fn wait_for_room(room: &Arc<Semaphore>, observer: &impl AcceptObserver) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(room).try_acquire_owned() {
        return Some(permit);
    }
    observer.waits();
    loop {
        observer.full();
        if let Ok(permit) = timeout(ROOM_RETRY, Arc::clone(room).acquire_owned()).await {
            observer.admitted();
            return permit.ok();
        }
    }
}

/// Whether a single connection failed before it was accepted, so the next accept may succeed.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
