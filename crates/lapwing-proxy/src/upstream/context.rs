//! What the requests of one worker share of the upstream, and how they connect to it.

use std::sync::Arc;

use http::{Request, Version};

use super::h2_pool::H2Pool;
use super::pool::ConnectionPool;
use super::traits::UpstreamTraits;
use crate::body::RequestBody;
use crate::config::UpstreamProtocol;
use crate::connection::{Greeting, SocketMeter};
use crate::error::Error;
use crate::health::UpstreamHealth;
use crate::in_flight::RequestAccount;
use lapwing_ledger::{Annotation, ObservedEvent, Stage, Stamp};
use lapwing_metrics::Counter;
use lapwing_net::{ConnectError, Socket, Target, Tasks};

/// What the requests of one worker share of the upstream.
#[derive(Debug)]
pub(crate) struct UpstreamContext {
    pub(crate) target: Target,
    /// The HTTP version spoken to it, if that is not `proxy.upstream_protocol`.
    pub(crate) own_protocol: Option<UpstreamProtocol>,
    /// What is known of it by all workers.
    pub(crate) health: Arc<UpstreamHealth>,
    /// Its connections of HTTP/1.1.
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) h2_pool: H2Pool,
    /// What was learnt of it.
    pub(crate) traits: Arc<UpstreamTraits>,
    pub(crate) tasks: Tasks,
}

impl UpstreamContext {
    /// The HTTP version spoken to it.
    pub(crate) fn protocol(&self, account: &RequestAccount) -> UpstreamProtocol {
        self.own_protocol.unwrap_or(account.context.config.upstream_protocol)
    }

    /// The upstream ended a connection: it may have gone.
    pub(crate) fn on_goodbye(&self) {
        self.health.on_goodbye(&self.target, &self.tasks);
    }

    /// Why a request that was sent in HTTP `asked` failed with `error`, as far as the connection's first bytes tell it.
    pub(crate) fn explain(&self, error: Error, account: &RequestAccount, asked: Version, meter: &SocketMeter) -> Error {
        if !matches!(error, Error::Reset(_) | Error::Garbage(_) | Error::H2(_)) {
            return error;
        }
        let protocol = self.protocol(account);
        let found = self.health.spoken.explain(&self.target, protocol, asked, meter.upstream.greeting());
        match (found, error) {
            // an HTTP server may answer garbage too
            (Some(Error::WrongProtocol(_)), Error::Garbage(error)) if meter.upstream.greeting() == Greeting::Other => {
                Error::Garbage(error)
            }
            (Some(found), _) => found,
            (None, error) => error,
        }
    }
}

/// Why a request was not carried.
#[derive(Debug)]
pub(crate) struct Undone {
    pub(crate) error: Error,
    /// The request, if there was no connection for it: nothing of it was written.
    pub(crate) request: Option<Box<Request<RequestBody>>>,
}

impl From<Error> for Undone {
    fn from(error: Error) -> Self {
        Self { error, request: None }
    }
}

/// Connects to the upstream, within `connect_timeout`. The ledger has how long that took, whatever came of it.
pub(crate) async fn connect(upstream: &UpstreamContext, account: &RequestAccount, version: Version) -> Result<Socket, Error> {
    let began = Stamp::now();
    let connected = connect_unmeasured(upstream, account, version).await;
    account.write_ledger(|ledger| ledger.observe(Stage::Unattributed, ObservedEvent::Connect, began, Stamp::now()));
    let socket = connected?;
    account.context.counters.bump(Counter::UpstreamConnected);
    Ok(socket)
}

async fn connect_unmeasured(upstream: &UpstreamContext, account: &RequestAccount, version: Version) -> Result<Socket, Error> {
    let (target, limit) = (&upstream.target, account.context.config.connect_timeout.get());
    let socket = target.connect(Some(version), limit).await.map_err(|error| {
        // it has told in its handshake that it speaks the other version
        if error.is_about_version() {
            let (spoken, protocol) = (&upstream.health.spoken, upstream.protocol(account));
            let found = if version == Version::HTTP_2 { Greeting::Http1 } else { Greeting::Http2 };
            if let Some(error) = spoken.explain(target, protocol, version, found) {
                return error;
            }
        }
        upstream.health.on_failed(target, &error);
        match error {
            ConnectError::Io(cause) => Error::Connect { upstream: target.to_string(), cause },
            ConnectError::Timeout(limit) => Error::ConnectTimeout { upstream: target.to_string(), limit },
        }
    })?;
    upstream.health.on_connected(target);
    account.annotate(Annotation::NewUpstreamConnection);
    Ok(socket)
}
