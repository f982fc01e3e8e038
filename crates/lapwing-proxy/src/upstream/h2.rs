//! HTTP/2 (h2c) to the upstream: one connection for each client's connection, so that one client's flow control never holds
//! another's up. A separate task drives it, because several streams share it; a stream has no task of its own: whoever waits for its
//! answer sends its request's body too.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{self, ResponseFuture, SendRequest};
use http::{HeaderMap, Request, Response, Version, header};
use http_body::Body;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::context::{Undone, UpstreamContext, connect};
use super::h1::{expired, response_deadline};
use super::h2_upload::{H2Upload, SettingsHeard, UploadError};
use crate::body::{Beside, GoesOn, H2Source, RequestBody, Rest, slow_upload};
use crate::connection::{Greeting, LazyDeadline, MeteredSocket, SocketMeter};
use crate::error::Error;
use crate::in_flight::RequestAccount;
use lapwing_ledger::{ObservedEvent, Stage, Stamp};
use lapwing_metrics::Counter;
use lapwing_net::Tasks;

/// A stream's window in bytes: how much may be sent ahead to a slow reader.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// A connection's window in bytes.
pub(crate) const CONNECTION_WINDOW: u32 = 4 << 20;
/// Streams that may be opened before the upstream has said how many it takes.
const INITIAL_STREAMS: usize = 100;
/// Bytes of one stream that may wait to be written.
const SEND_BUFFER: usize = 1 << 20;

/// Deadlines that are kept for further requests, at most.
const KEPT_DEADLINES: usize = 32;

/// The upstream's side of one client's connection.
#[derive(Debug, Default)]
pub(crate) struct H2Connection {
    sender: tokio::sync::Mutex<Option<Sender>>,
    /// Of requests that were answered: their timers outlive them.
    deadlines: Mutex<Vec<LazyDeadline>>,
}

/// What opens streams on one connection.
#[derive(Clone, Debug)]
struct Sender {
    streams: SendRequest<Bytes>,
    meter: Arc<SocketMeter>,
    state: Arc<ConnectionState>,
}

/// What is known of one connection.
#[derive(Debug)]
struct ConnectionState {
    /// It has ended, or its end was announced.
    is_over: AtomicBool,
    /// The upstream's `SETTINGS` apply.
    has_settings: AtomicBool,
    /// What the upstream began with. The sender goes with the connection.
    heard: watch::Receiver<Heard>,
}

/// What was heard of the upstream's beginning.
#[derive(Debug, Default)]
struct Heard {
    greeting: Option<Greeting>,
    /// Its `SETTINGS` apply.
    has_settings: bool,
}

impl ConnectionState {
    /// Waits for the upstream's `SETTINGS`, or for the connection's end; `None` if they apply.
    fn settings(&self) -> Option<SettingsHeard> {
        if self.has_settings.load(Relaxed) {
            return None;
        }
        let mut heard = self.heard.clone();
        Some(Box::pin(async move {
            let _ = heard.wait_for(|heard| heard.has_settings).await;
        }))
    }
}

impl Sender {
    fn is_over(&self) -> bool {
        self.state.is_over.load(Relaxed)
    }
}

impl H2Connection {
    /// Carries `request`, with its account and its client's connection, to the upstream and waits for the response's head. If there is no
    /// connection for it, it comes back with the error.
    pub(crate) async fn carry_request(
        &self,
        upstream: &UpstreamContext,
        request: Box<Request<RequestBody>>,
        (account, client): (&RequestAccount, &Arc<SocketMeter>),
    ) -> Result<Response<H2Source>, Undone> {
        let (head, body) = request.into_parts();
        let mut attempt = account.stamps.dispatch();
        let mut may_retry = true;
        let mut deadline = self.deadlines.lock().pop().unwrap_or_default();
        let (Sender { mut streams, meter, state }, asked) = loop {
            let (mut sender, asked, reused) = match self.known_sender() {
                Some(sender) => (sender, attempt, true),
                None => match self.sender(upstream, account, client).await {
                    Ok((sender, reused)) => (sender, Stamp::now(), reused),
                    Err(error) => {
                        let request = Some(Box::new(Request::from_parts(head, body)));
                        return Err(Undone { error, request });
                    }
                },
            };
            // room for one more stream
            let opened = poll_fn(|cx| match sender.streams.poll_ready(cx) {
                Poll::Ready(opened) => Poll::Ready(Ok(opened)),
                Poll::Pending => overdue(cx, account, asked, &mut deadline).map(Err),
            });
            match opened.await? {
                Ok(()) => break (sender, asked),
                Err(_) if reused && may_retry => {
                    // nothing was written: the connection has ended
                    may_retry = false;
                    account.context.counters.bump(Counter::UpstreamRetried);
                    account.write_ledger(|ledger| {
                        ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, attempt, Stamp::now())
                    });
                    attempt = Stamp::now();
                    // not taken out: another request may have put a new one there
                    sender.state.is_over.store(true, Relaxed);
                }
                Err(error) => {
                    return Err(upstream.explain(Error::H2(error), account, Version::HTTP_2, &sender.meter).into());
                }
            }
        };
        let is_over = body.is_end_stream();
        let explain = |error| upstream.explain(error, account, Version::HTTP_2, &meter);
        let (answer, stream) =
            streams.send_request(Request::from_parts(head, ()), is_over).map_err(|error| explain(Error::H2(error)))?;
        let upload = (!is_over).then(|| H2Upload::new(body, stream, state.settings()));
        let mut awaited = Awaited { answer, upload, asked, deadline };
        let response = poll_fn(|cx| awaited.poll_head(cx, account)).await.map_err(explain)?;
        let Awaited { upload, deadline, .. } = awaited;
        self.keep_deadline(deadline);
        let length = content_length(response.headers());
        let rest = upload.map(|upload| RestOfRequest::begin(upload, &upstream.tasks));
        Ok(response.map(|stream| H2Source::new(stream, meter, length, rest)))
    }

    /// What the upstream begins with when it is spoken to in HTTP/2; [`Greeting::Nothing`] if it ends the connection without a word.
    pub(crate) async fn greeting(
        &self,
        upstream: &UpstreamContext,
        account: &RequestAccount,
        client: &Arc<SocketMeter>,
    ) -> Result<Greeting, Error> {
        let mut heard = match self.sender(upstream, account, client).await {
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
            Poll::Pending => overdue(cx, account, asked, &mut deadline).map(Err),
        })
        .await?;
        upstream.health.spoken.on_greeting(&upstream.target, greeting);
        Ok(greeting)
    }

    fn keep_deadline(&self, mut deadline: LazyDeadline) {
        let mut kept = self.deadlines.lock();
        if kept.len() < KEPT_DEADLINES {
            deadline.rest();
            kept.push(deadline);
        }
    }

    /// What opens streams on the connection, if there is one and nobody is opening another.
    fn known_sender(&self) -> Option<Sender> {
        let slot = self.sender.try_lock().ok()?;
        slot.as_ref().filter(|sender| !sender.is_over()).cloned()
    }

    async fn sender(
        &self,
        upstream: &UpstreamContext,
        account: &RequestAccount,
        client: &Arc<SocketMeter>,
    ) -> Result<(Sender, bool), Error> {
        let limit = account.context.config.connect_timeout.get();
        // another request of this client may be connecting: this one waits with it, within the same limit
        let mut slot = tokio::time::timeout(limit, self.sender.lock())
            .await
            .map_err(|_| Error::ConnectTimeout { upstream: upstream.target.to_string(), limit })?;
        if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_over()) {
            return Ok((sender.clone(), true));
        }
        // rare and large: boxed, so that other requests do not carry its size
        let sender = Box::pin(open(upstream, account, client)).await?;
        *slot = Some(sender.clone());
        Ok((sender, false))
    }
}

/// Opens a connection, which a task of its own drives.
async fn open(upstream: &UpstreamContext, account: &RequestAccount, client: &Arc<SocketMeter>) -> Result<Sender, Error> {
    let socket = connect(upstream, account, Version::HTTP_2).await?;
    if socket.agreed() == Some(Version::HTTP_11) {
        let (spoken, protocol) = (&upstream.health.spoken, upstream.protocol(account));
        spoken.on_no_http2(&upstream.target);
        let found = spoken.explain(&upstream.target, protocol, Version::HTTP_2, Greeting::Http1);
        return Err(found.unwrap_or(Error::StreamCut));
    }
    let meter = Arc::<SocketMeter>::default();
    let io = MeteredSocket::shared_upstream(socket, meter.clone(), client.clone());
    let (streams, connection) = client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(INITIAL_STREAMS)
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
    upstream.tasks.spawn(drive(connection, Driven { meter, state, tells: Some(tells), is_leaving: false }, on_goodbye));
    Ok(sender)
}

/// What is seen of a connection by its task.
struct Driven {
    meter: Arc<SocketMeter>,
    state: Arc<ConnectionState>,
    /// Until everything was heard of its beginning.
    tells: Option<watch::Sender<Heard>>,
    is_leaving: bool,
}

impl Driven {
    /// Tells what came of the upstream's beginning.
    fn tell_beginning(&mut self) {
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
            self.tells = None;
        }
    }
}

/// Drives a connection to its end. `on_goodbye` is called when the upstream announces it, or ends it without a word.
async fn drive(mut connection: client::Connection<MeteredSocket>, mut driven: Driven, on_goodbye: impl Fn()) {
    let ended = poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        driven.tell_beginning();
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

/// A request that was sent, up to its body, and whose answer is awaited.
struct Awaited {
    answer: ResponseFuture,
    upload: Option<H2Upload>,
    asked: Stamp,
    deadline: LazyDeadline,
}

impl Awaited {
    /// Sends the body and waits for the response's head, until [`response_deadline`] expires.
    fn poll_head(&mut self, cx: &mut Context<'_>, account: &RequestAccount) -> Poll<Result<Response<RecvStream>, Error>> {
        // first, so that head and body go out in one write
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.poll_sent(cx)
        {
            self.upload = None;
            if let Err(UploadError::Body(error)) = sent {
                return Poll::Ready(Err(Error::from(&error)));
            }
        }
        if let Poll::Ready(answered) = Pin::new(&mut self.answer).poll(cx) {
            return Poll::Ready(answered.map_err(Error::H2));
        }
        overdue(cx, account, self.asked, &mut self.deadline).map(Err)
    }
}

/// Ready once the answer to a request that was sent at `asked` is overdue, or its body comes too slowly.
fn overdue(cx: &mut Context<'_>, account: &RequestAccount, asked: Stamp, deadline: &mut LazyDeadline) -> Poll<Error> {
    let (since, limit) = response_deadline(account, asked);
    if deadline.has_expired(cx, since, limit) {
        return Poll::Ready(expired(account, limit));
    }
    slow_upload(account, cx, deadline).map_or(Poll::Pending, Poll::Ready)
}

/// The length that an answer's head announces; `None` if it announces none, or several.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut fields = headers.get_all(header::CONTENT_LENGTH).iter();
    let first = fields.next()?;
    if fields.any(|field| field != first) {
        return None;
    }
    first.to_str().ok()?.parse().ok()
}

/// What is left of a request that was answered before its end.
#[derive(Debug)]
struct RestOfRequest {
    upload: Beside<H2Upload>,
    tasks: Tasks,
}

impl RestOfRequest {
    fn begin(upload: H2Upload, tasks: &Tasks) -> Box<dyn Rest> {
        let this = Self { upload: Beside::new(Some(upload), tasks.clone()), tasks: tasks.clone() };
        this.upload.go_on(); // who asked until now may not ask again
        Box::new(this)
    }
}

impl GoesOn for H2Upload {
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        self.poll_sent(cx).is_ready()
    }
}

impl Rest for RestOfRequest {
    fn is_sent(&mut self, cx: &mut Context<'_>) -> bool {
        self.upload.ask(cx);
        self.upload.go_on()
    }

    fn leave(&self) {
        self.upload.leave();
    }

    fn go_on(self: Box<Self>) {
        if let Some(mut upload) = self.upload.take() {
            self.tasks.spawn(async move {
                let _ = poll_fn(|cx| upload.poll_sent(cx).map(drop)).await;
            });
        }
    }
}
