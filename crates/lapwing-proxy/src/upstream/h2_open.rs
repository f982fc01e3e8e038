//! Opens HTTP/2 connections to the upstream. A task of its own drives each, because several streams share it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};

use h2::client;
use http::Version;
use tokio::sync::watch;

use super::context::{UpstreamContext, connect};
use super::h2_connection::{ConnectionState, H2Connection, Heard, MAX_STREAMS, Sender};
use crate::connection::{Greeting, LazyDeadline, MeteredSocket, SocketMeter};
use crate::error::Error;
use crate::in_flight::RequestAccount;
use lapwing_ledger::Stamp;

/// Bytes of one stream that may wait to be written.
const SEND_BUFFER: usize = 1 << 20;

impl H2Connection {
    /// What the upstream begins with when it is spoken to in HTTP/2; [`Greeting::Nothing`] if it ends the connection without a word.
    /// `overdue` says when it has had its time.
    pub(crate) async fn greeting(
        &self,
        upstream: &UpstreamContext,
        account: &RequestAccount,
        overdue: impl Fn(&mut Context<'_>, Stamp, &mut LazyDeadline) -> Poll<Error>,
    ) -> Result<Greeting, Error> {
        let mut heard = match self.sender(upstream, account).await {
            Ok((sender, _)) => sender.state.heard.clone(),
            // over TLS it was agreed on
            Err(Error::WrongProtocol(_)) if upstream.health.spoken.refuses_http2() => return Ok(Greeting::Http1),
            Err(error) => return Err(error),
        };
        let asked = Stamp::now();
        let mut deadline = LazyDeadline::default();
        let mut told = pin!(heard.wait_for(|heard| heard.greeting.is_some()));
        let greeting = poll_fn(|cx| match told.as_mut().poll(cx) {
            Poll::Ready(told) => Poll::Ready(Ok(told.ok().and_then(|heard| heard.greeting).unwrap_or(Greeting::Nothing))),
            Poll::Pending => overdue(cx, asked, &mut deadline).map(Err),
        })
        .await?;
        upstream.health.spoken.on_greeting(&upstream.target, greeting);
        Ok(greeting)
    }

    /// What opens streams on the connection, which is opened if there is none; and whether there was one.
    pub(crate) async fn sender(&self, upstream: &UpstreamContext, account: &RequestAccount) -> Result<(Sender, bool), Error> {
        let limit = account.context.config.connect_timeout.get();
        // another request may be connecting: this one waits with it, within the same limit
        let mut slot = tokio::time::timeout(limit, self.sender.lock())
            .await
            .map_err(|_| Error::ConnectTimeout { upstream: upstream.target.to_string(), limit })?;
        if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_over()) {
            return Ok((sender.clone(), true));
        }
        // rare and large: boxed, so that other requests do not carry its size
        let sender = Box::pin(open(upstream, account, self)).await?;
        *slot = Some(sender.clone());
        Ok((sender, false))
    }
}

/// Opens a connection, which a task of its own drives.
async fn open(upstream: &UpstreamContext, account: &RequestAccount, this: &H2Connection) -> Result<Sender, Error> {
    let socket = connect(upstream, account, Version::HTTP_2).await?;
    if socket.agreed() == Some(Version::HTTP_11) {
        let (spoken, protocol) = (&upstream.health.spoken, upstream.protocol(account));
        spoken.on_no_http2(&upstream.target);
        let found = spoken.explain(&upstream.target, protocol, Version::HTTP_2, Greeting::Http1);
        return Err(found.unwrap_or(Error::StreamCut));
    }
    let meter = Arc::<SocketMeter>::default();
    let io = MeteredSocket::shared_upstream(socket, meter.clone(), this.load.clone());
    let (streams, connection) = client::Builder::new()
        .enable_push(false)
        .initial_window_size(this.windows.stream)
        .initial_connection_window_size(this.windows.connection)
        .initial_max_send_streams(MAX_STREAMS as usize)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(account.context.config.max_header_bytes.get()).unwrap_or(u32::MAX))
        .handshake(io)
        .await
        .map_err(Error::H2)?;
    let (tells, heard) = watch::channel(Heard::default());
    let state = Arc::new(ConnectionState { is_over: AtomicBool::new(false), has_settings: AtomicBool::new(false), heard });
    let sender = Sender { streams, meter: meter.clone(), state: state.clone() };
    let (health, target, tasks) = (upstream.health.clone(), upstream.target.clone(), upstream.tasks.clone());
    let on_goodbye = move || health.on_goodbye(&target, &tasks);
    upstream.tasks.spawn(drive(
        connection,
        Driven { meter, state, tells: Some(tells), max_streams: this.max_streams.clone(), is_leaving: false },
        on_goodbye,
    ));
    Ok(sender)
}

/// What is seen of a connection by its task.
struct Driven {
    meter: Arc<SocketMeter>,
    state: Arc<ConnectionState>,
    /// Until everything was heard of its beginning.
    tells: Option<watch::Sender<Heard>>,
    max_streams: Arc<AtomicU32>,
    is_leaving: bool,
}

impl Driven {
    /// Tells what came of the upstream's beginning, which allows so many streams.
    fn tell_beginning(&mut self, max_streams: impl Fn() -> usize) {
        let (Some(tells), signs) = (&self.tells, &self.meter.upstream) else { return };
        let greeting = signs.greeting();
        if greeting == Greeting::Nothing {
            return;
        }
        // they apply once they are acknowledged, which waits for a socket that is full
        let has_settings = signs.has_settings() && self.meter.is_drained.load(Relaxed);
        tells.send_if_modified(|heard| {
            let is_news = heard.greeting.is_none() || has_settings;
            *heard = Heard { greeting: Some(greeting), has_settings };
            is_news
        });
        if has_settings {
            self.state.has_settings.store(true, Relaxed);
            self.max_streams.store(u32::try_from(max_streams()).unwrap_or(u32::MAX).clamp(1, MAX_STREAMS), Relaxed);
            self.tells = None;
        }
    }
}

/// Drives a connection to its end. `on_goodbye` is called when the upstream announces it, or ends it without a word.
async fn drive(mut connection: client::Connection<MeteredSocket>, mut driven: Driven, on_goodbye: impl Fn()) {
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        driven.tell_beginning(|| connection.max_concurrent_send_streams());
        if !driven.is_leaving && driven.meter.upstream.is_leaving() {
            driven.is_leaving = true;
            driven.state.is_over.store(true, Relaxed);
            on_goodbye();
        }
        polled
    })
    .await;
    driven.state.is_over.store(true, Relaxed);
    if let Err(error) = ended {
        tracing::debug!(%error, "the upstream's HTTP/2 connection ended");
        if !driven.is_leaving {
            on_goodbye();
        }
    }
}
