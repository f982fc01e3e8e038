//! What only a client's connection has: timeouts between requests, bytes that go out before hyper's, refusals of malformed
//! heads, and a lingering close.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Context;
use std::time::Duration;

use super::lazy_deadline::LazyDeadline;
use super::meter::SocketMeter;
use super::refused_heads::{SentFrame, SentFrames};
use lapwing_ledger::Stamp;
use lapwing_net::Socket;

/// After an answer in the middle of its request, a client may send nothing for this long before its connection is closed.
const LINGER_IDLE: Duration = Duration::from_secs(2);
/// After an answer in the middle of its request, a client may go on sending for this long.
const LINGER: Duration = Duration::from_secs(30);

/// How long a connection is idle before its buffers are given back (HTTP/1.1).
pub(crate) const REST: Duration = Duration::from_secs(2);

/// While a request's body is not complete, it is looked so often whether the client is still there.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(500);
/// Hyper holds at most so many bytes that were read and not handed on.
const MAX_READ_AHEAD: u64 = 4 << 20;

/// What an HTTP/2 connection begins with (RFC 9113, 3.4), as far as it tells it from any request.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// Decides how a head that is not a request is answered, and counts it.
pub(crate) trait OnRefusal: Send + Sync {
    /// Hyper refuses the head with `status`. Returns the bytes of the response that is sent instead of hyper's.
    fn on_refusal(&self, status: u16, meter: &Arc<SocketMeter>) -> Vec<u8>;

    /// HTTP/2 refused a stream before it was a request, with `status`, or with the end of the connection (0).
    fn on_refused_stream(&self, status: u16, meter: &Arc<SocketMeter>);
}

/// How long a client's connection may stand still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimeouts {
    /// From the first byte of a head to its last.
    pub(crate) head: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// While bytes wait for the client to take them.
    pub(crate) write: Duration,
}

/// The state of a client's side.
pub(crate) struct ClientSide {
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) deadline: LazyDeadline,
    pub(crate) accepted: Stamp,
    /// Bytes that go out before hyper's, and how many of them have gone.
    pub(crate) ahead: Option<(Vec<u8>, usize)>,
    on_refusal: Arc<dyn OnRefusal>,
    is_refusing: bool,
    /// How much of [`PREFACE`] came, while nothing else did.
    preface: Option<u8>,
    lingering: Option<Stamp>,
    sent: SentFrames,
    /// When it was last looked whether the client is still there.
    looked: Option<Stamp>,
}

impl std::fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSide").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

impl ClientSide {
    pub(crate) fn new(timeouts: ClientTimeouts, on_refusal: Arc<dyn OnRefusal>) -> Self {
        Self {
            timeouts,
            deadline: LazyDeadline::default(),
            accepted: Stamp::now(),
            ahead: None,
            on_refusal,
            is_refusing: false,
            preface: Some(0),
            lingering: None,
            sent: SentFrames::default(),
            looked: None,
        }
    }

    /// Returns whether hyper's own answer is thrown away, because Lapwing's has been sent.
    pub(crate) const fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// Since when nothing has moved. A client that never sent a byte is idle too.
    pub(crate) fn idle_since(&self, meter: &SocketMeter) -> Stamp {
        meter.last_write().max(meter.last_read()).unwrap_or(self.accepted)
    }

    /// Returns whether the connection is to rest once it has been idle for [`REST`].
    pub(crate) fn may_rest(&self, meter: &SocketMeter) -> bool {
        REST < self.timeouts.idle && !meter.is_multiplexed.load(Relaxed) && !meter.is_unread() && !meter.is_rested()
    }

    /// A flush may have ended the last request (HTTP/1.1), and nobody reads again before the client sends something: sees to it that the task
    /// is woken when that may have taken too long.
    pub(crate) fn await_next(&mut self, cx: &mut Context<'_>, meter: &SocketMeter) {
        if meter.open.load(Relaxed) > 0 || meter.is_multiplexed.load(Relaxed) {
            return;
        }
        let (since, limit) = match meter.first_read() {
            Some(began) => (began, self.timeouts.head),
            None => (self.idle_since(meter), if self.may_rest(meter) { REST } else { self.timeouts.idle }),
        };
        // whoever is woken asks for the same limits, so it finds the same
        if self.deadline.has_expired(cx, since, limit) {
            cx.waker().wake_by_ref();
        }
    }

    /// The head comes too slowly: its refusal goes out before the connection ends.
    pub(crate) fn time_out(&mut self, meter: &Arc<SocketMeter>) {
        self.is_refusing = true;
        self.ahead = Some((self.on_refusal.on_refusal(408, meter), 0));
    }

    /// Bytes came. Returns whether the connection speaks HTTP/2, once its first bytes say so, however they were split.
    pub(crate) fn is_preface(&mut self, mut bytes: &[u8]) -> bool {
        while let (Some(at), Some((byte, rest))) = (self.preface, bytes.split_first()) {
            let is_next = PREFACE.get(usize::from(at)) == Some(byte);
            self.preface = is_next.then_some(at + 1);
            if usize::from(at) + 1 == PREFACE.len() {
                self.preface = None;
                return is_next;
            }
            bytes = rest;
        }
        false
    }

    /// Returns whether it cannot be told yet that the client does not speak HTTP/2.
    pub(crate) const fn may_be_preface(&self) -> bool {
        self.preface.is_some()
    }

    /// If `buf` is hyper's refusal of a head, sends Lapwing's instead. Call it only while no request is open: what hyper
    /// writes then is a refusal, and the status is in its first line.
    pub(crate) fn refuse(&mut self, buf: &[u8], meter: &Arc<SocketMeter>) {
        if self.is_refusing {
            return;
        }
        if let Some(status @ (400 | 414 | 431)) = status(buf) {
            self.is_refusing = true;
            self.ahead = Some((self.on_refusal.on_refusal(status, meter), 0));
        }
    }

    /// The socket took `bytes` of HTTP/2: counts the heads that it refused by itself.
    pub(crate) fn count_refused(&mut self, bytes: &[u8], meter: &Arc<SocketMeter>) {
        let Self { sent, on_refusal, .. } = self;
        sent.pass(bytes, |frame| match frame {
            SentFrame::LastHead { is_bare } => {
                if !meter.take_last_head() && is_bare {
                    on_refusal.on_refused_stream(431, meter);
                }
            }
            SentFrame::TooLarge => {
                meter.is_head_too_large.store(true, Relaxed);
                on_refusal.on_refused_stream(0, meter);
            }
        });
    }

    /// Returns whether a client has gone that has `left` bytes of a request's body to send. Nobody reads its socket while the upstream
    /// takes no more, so it is looked at from time to time. A client that was reset has gone. One that has ended its side has gone
    /// if what it can have sent is not enough; else it cannot be told from one that waits.
    pub(crate) fn is_gone(&mut self, cx: &mut Context<'_>, socket: &Socket, left: u64) -> bool {
        let since = *self.looked.get_or_insert_with(Stamp::now);
        if !self.deadline.has_expired(cx, since, PRESENCE_INTERVAL) {
            return false;
        }
        self.looked = Some(Stamp::now());
        self.deadline.wake_within(cx, PRESENCE_INTERVAL);
        let closed = socket.peer_closed();
        let can_have_come = || socket.receive_buffer().saturating_add(MAX_READ_AHEAD);
        closed.takes || (closed.sends && left > can_have_come())
    }

    /// Returns whether the connection is being closed over bytes that were not read.
    pub(crate) const fn is_lingering(&self) -> bool {
        self.lingering.is_some()
    }

    /// When lingering began: now, if it had not.
    pub(crate) fn linger(&mut self) -> Stamp {
        *self.lingering.get_or_insert_with(Stamp::now)
    }

    /// Returns whether a client that lingers since `since`, and sent something at `moved`, has had its time.
    pub(crate) fn has_lingered(&mut self, cx: &mut Context<'_>, since: Stamp, moved: Stamp) -> bool {
        self.deadline.has_expired(cx, moved, LINGER_IDLE) || self.deadline.has_expired(cx, since, LINGER)
    }

    /// Returns whether lingering since `since` has lasted as long as it may, whatever the client sends.
    pub(crate) fn has_lingered_long(since: Stamp) -> bool {
        since.elapsed() >= u64::try_from(LINGER.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The status in a response's first line.
fn status(buf: &[u8]) -> Option<u16> {
    let status = buf.strip_prefix(b"HTTP/1.1 ").or_else(|| buf.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}
