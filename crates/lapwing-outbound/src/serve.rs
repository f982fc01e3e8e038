//! The listeners: each connection gets one of its own to the store, before anything of it is read.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cached_splice::CachedSplice;
use crate::splice::Splice;
use crate::state::{DownstreamState, Downstreams};
use lapwing_ledger::Stamp;
use lapwing_metrics::Counter;
use lapwing_net::{
    AcceptLimits, AcceptObserver, Accepted, BoundListener, Socket, Target, Tasks, WarningThrottle, accept, outbound_connections,
};

/// How long connecting to a store may take. A client that gives up sooner is noticed when it is over.
const CONNECT: Duration = Duration::from_secs(10);
/// How long connections in which an answer is waited for stay open after the stop.
const GRACE: Duration = Duration::from_secs(5);
/// How often one of those is looked at.
const LOOK: Duration = Duration::from_millis(20);

static WARNINGS: WarningThrottle = WarningThrottle::new();

/// A listener, and where its connections go.
#[derive(Debug)]
pub struct OutboundListener {
    /// Where it listens.
    pub listener: BoundListener,
    /// Where it goes.
    pub target: Target,
}

/// Serves the listeners, in the order of `all`, until `stop`. Then it closes them and the connections that stand still, and lets answers
/// that are waited for arrive, for up to five seconds.
///
/// # Errors
///
/// If a listener cannot be registered with the runtime.
pub async fn serve(listeners: Vec<OutboundListener>, all: Downstreams, stop: CancellationToken) -> io::Result<()> {
    let tasks = Tasks::default();
    let limits = AcceptLimits { max_connections: Some(outbound_connections()), ..AcceptLimits::default() };
    let mut accepting = Vec::new();
    for (OutboundListener { listener, target }, of) in listeners.into_iter().zip(all.list.iter()) {
        let listener = listener.registered()?;
        let (of, all, stop, tasks) = (of.clone(), all.clone(), stop.clone(), tasks.clone());
        accepting.push(async move {
            let observer = WaitingClients(all.clone());
            accept(listener, limits, &tasks, &stop, &observer, |accepted| {
                connection(accepted, target.clone(), of.clone(), all.clone(), stop.clone())
            })
            .await;
        });
    }
    join_all(accepting).await;
    // connections end by themselves
    let _ = timeout(GRACE + LOOK, tasks.finished()).await;
    Ok(())
}

/// Counts clients that wait for their place.
struct WaitingClients(Downstreams);

impl AcceptObserver for WaitingClients {
    fn waits(&self) {
        self.0.counters().bump(Counter::OutboundWaited);
    }

    fn failed(&self) {
        self.0.counters().bump(Counter::AcceptsFailed);
    }
}

async fn connection(accepted: Accepted, target: Target, of: Arc<DownstreamState>, all: Downstreams, stop: CancellationToken) {
    let Accepted { socket: client, peer, permit } = accepted;
    let _permit = permit;
    let _open = OpenConnection::new(&of);
    let connected = tokio::select! {
        connected = target.connect(of.kind.version(), CONNECT) => connected,
        () = stop.cancelled() => return,
    };
    let store = match connected {
        Ok(store) => store,
        Err(error) => {
            of.figures.lock().connects_failed += 1;
            if let Some(held_back) = WARNINGS.admit(Stamp::now()) {
                tracing::warn!(downstream = %of.name, %error, held_back, "cannot connect: the server's connection is closed");
            }
            return;
        }
    };
    let mut splice = Passing::new(client, store, of.clone(), all);
    let ended = {
        let passing = pin!(splice.run());
        tokio::select! {
            ended = passing => Some(ended),
            () = stop.cancelled() => None,
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => after_stop(&mut splice).await,
    };
    if let Err(error) = ended {
        tracing::debug!(downstream = %of.name, %error, %peer, "a connection failed");
    }
}

/// A connection on its way, with or without a cache.
enum Passing {
    Plain(Box<Splice>),
    Cached(Box<CachedSplice>),
}

impl Passing {
    fn new(client: Socket, store: Socket, of: Arc<DownstreamState>, all: Downstreams) -> Self {
        if of.cache.is_some() {
            Self::Cached(Box::new(CachedSplice::new(client, store, of, all)))
        } else {
            Self::Plain(Box::new(Splice::new(client, store, of, all)))
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(splice) => splice.run().await,
            Self::Cached(splice) => splice.run().await,
        }
    }

    fn is_waiting(&self) -> bool {
        match self {
            Self::Plain(splice) => splice.is_waiting(),
            Self::Cached(splice) => splice.is_waiting(),
        }
    }
}

/// Passes bytes on while an answer is waited for.
async fn after_stop(splice: &mut Passing) -> io::Result<()> {
    let began = Stamp::now();
    while splice.is_waiting() && began.elapsed() < GRACE.as_nanos() as u64 {
        if let Ok(ended) = timeout(LOOK, splice.run()).await {
            return ended;
        }
    }
    Ok(())
}

/// Counts a connection while it is open.
struct OpenConnection(Arc<DownstreamState>);

impl OpenConnection {
    fn new(of: &Arc<DownstreamState>) -> Self {
        let mut figures = of.figures.lock();
        figures.connections += 1;
        figures.connections_open += 1;
        drop(figures);
        Self(of.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.figures.lock().connections_open -= 1;
    }
}
