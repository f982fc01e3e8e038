//! What only a client's connection has: timeouts between requests, bytes that go out before hyper's, refusals of malformed
//! heads, and a lingering close.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use super::lazy_deadline::LazyDeadline;
use super::meter::SocketMeter;
use crate::ledger::Stamp;

/// After an answer in the middle of its request, a client may send nothing for this long before its connection is closed.
const LINGER_IDLE: Duration = Duration::from_secs(2);
/// After an answer in the middle of its request, a client may go on sending for this long.
const LINGER: Duration = Duration::from_secs(30);

/// What an HTTP/2 connection begins with (RFC 9113, 3.4), as far as it tells it from any request.
const PREFACE: &[u8] = b"PRI * HTTP/2";

/// Decides how a head that is not a request is answered, and counts it.
pub(crate) trait OnRefusal: Send + Sync {
    /// Hyper refuses the head with `status`. Returns the bytes of the response that is sent instead of hyper's.
    fn on_refusal(&self, status: u16, meter: &Arc<SocketMeter>) -> Vec<u8>;
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
pub(super) struct ClientSide {
    pub(super) timeouts: ClientTimeouts,
    pub(super) deadline: LazyDeadline,
    pub(super) accepted: Stamp,
    /// Bytes that go out before hyper's, and how many of them have gone.
    pub(super) ahead: Option<(Vec<u8>, usize)>,
    on_refusal: Arc<dyn OnRefusal>,
    is_refusing: bool,
    /// How much of [`PREFACE`] came, while nothing else did.
    preface: Option<u8>,
    lingering: Option<Stamp>,
}

impl std::fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSide").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

impl ClientSide {
    pub(super) fn new(timeouts: ClientTimeouts, on_refusal: Arc<dyn OnRefusal>) -> Self {
        Self {
            timeouts,
            deadline: LazyDeadline::default(),
            accepted: Stamp::now(),
            ahead: None,
            on_refusal,
            is_refusing: false,
            preface: Some(0),
            lingering: None,
        }
    }

    /// Returns whether hyper's own answer is thrown away, because Lapwing's has been sent.
    pub(super) const fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// The head comes too slowly: its refusal goes out before the connection ends.
    pub(super) fn time_out(&mut self, meter: &Arc<SocketMeter>) {
        self.is_refusing = true;
        self.ahead = Some((self.on_refusal.on_refusal(408, meter), 0));
    }

    /// Bytes came. Returns whether the connection speaks HTTP/2, once its first bytes say so, however they were split.
    pub(super) fn is_preface(&mut self, mut bytes: &[u8]) -> bool {
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

    /// If `buf` is hyper's refusal of a head, sends Lapwing's instead. Call it only while no request is open: what hyper
    /// writes then is a refusal, and the status is in its first line.
    pub(super) fn refuse(&mut self, buf: &[u8], meter: &Arc<SocketMeter>) {
        if self.is_refusing {
            return;
        }
        if let Some(status) = status(buf) {
            self.is_refusing = true;
            self.ahead = Some((self.on_refusal.on_refusal(status, meter), 0));
        }
    }

    /// Returns whether the connection is being closed over bytes that were not read.
    pub(super) const fn is_lingering(&self) -> bool {
        self.lingering.is_some()
    }

    /// When lingering began: now, if it had not.
    pub(super) fn linger(&mut self) -> Stamp {
        *self.lingering.get_or_insert_with(Stamp::now)
    }

    /// Returns whether a client that lingers since `since`, and sent something at `moved`, has had its time.
    pub(super) fn has_lingered(&mut self, cx: &mut Context<'_>, since: Stamp, moved: Stamp) -> bool {
        self.deadline.has_expired(cx, moved, LINGER_IDLE) || self.deadline.has_expired(cx, since, LINGER)
    }

    /// Returns whether lingering since `since` has lasted as long as it may, whatever the client sends.
    pub(super) fn has_lingered_long(since: Stamp) -> bool {
        since.elapsed() >= u64::try_from(LINGER.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The status in a response's first line.
fn status(buf: &[u8]) -> Option<u16> {
    let status = buf.strip_prefix(b"HTTP/1.1 ").or_else(|| buf.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}
