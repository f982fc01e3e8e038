//! The stamps of one request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapwing_ledger::{Ledger, ObservedEvent, Stage, Stamp, UpstreamWindow};

/// The stamps of one request. One task writes each and others read it a moment later, so relaxed order is enough; zero is "not yet".
#[derive(Debug)]
pub(crate) struct RequestStamps {
    /// When the handler was called: the whole head has been read by then.
    called: Stamp,
    request_last: AtomicU64,
    request_end: AtomicU64,
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
    /// When it went to the upstream, and when the upstream window ended.
    dispatched: AtomicU64,
    egress: AtomicU64,
}

impl RequestStamps {
    /// Of a request whose handler was called at `called`.
    pub(crate) fn new(called: Stamp) -> Self {
        Self {
            called,
            request_last: AtomicU64::new(called.as_ns()),
            request_end: AtomicU64::new(0),
            request_bytes: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
            dispatched: AtomicU64::new(0),
            egress: AtomicU64::new(0),
        }
    }

    /// Those of a request that has been read, and goes to one of two upstreams.
    pub(crate) fn of_leg(&self) -> Self {
        let copy = |of: &AtomicU64| AtomicU64::new(of.load(Relaxed));
        Self {
            called: self.called,
            request_last: copy(&self.request_last),
            request_end: copy(&self.request_end),
            request_bytes: copy(&self.request_bytes),
            response_bytes: AtomicU64::new(0),
            dispatched: AtomicU64::new(0),
            egress: AtomicU64::new(0),
        }
    }

    /// `n` bytes of the request's body were read at `at`.
    pub(crate) fn on_request_bytes(&self, n: usize, at: Stamp) {
        // only one task reads the request, so a load and a store are enough
        self.request_bytes.store(self.request_bytes.load(Relaxed) + n as u64, Relaxed);
        self.request_last.store(at.as_ns(), Relaxed);
    }

    /// The request was read to its end at `at`.
    pub(crate) fn on_request_end(&self, at: Stamp) {
        self.request_end.store(at.as_ns(), Relaxed);
    }

    /// When the request was read to its end; `None` before that.
    pub(crate) fn request_end(&self) -> Option<Stamp> {
        Stamp::from_ns(self.request_end.load(Relaxed))
    }

    /// When bytes of the request were last read.
    pub(crate) fn request_last(&self) -> Stamp {
        Stamp::from_ns(self.request_last.load(Relaxed)).unwrap_or(self.called)
    }

    /// How many bytes of the request's body were read.
    pub(crate) fn request_bytes(&self) -> u64 {
        self.request_bytes.load(Relaxed)
    }

    /// The request was admitted and goes to the upstream now, which ends validation.
    pub(crate) fn dispatch(&self) -> Stamp {
        let now = Stamp::now();
        if self.dispatched.load(Relaxed) == 0 {
            self.dispatched.store(now.as_ns(), Relaxed);
        }
        now
    }

    /// The upstream window ends at `end`.
    pub(crate) fn end_window(&self, end: Stamp) {
        self.egress.store(end.as_ns(), Relaxed);
    }

    /// So many bytes of the response's body go to the client.
    pub(crate) fn on_response_bytes(&self, n: usize) {
        self.response_bytes.store(self.response_bytes.load(Relaxed) + n as u64, Relaxed);
    }

    /// A spliced stream carried these many bytes from the client and to it.
    pub(crate) fn on_spliced_bytes(&self, from_client: u64, to_client: u64) {
        self.request_bytes.fetch_add(from_client, Relaxed);
        self.response_bytes.fetch_add(to_client, Relaxed);
    }

    /// Opens the upstream window in `ledger`: the upstream began to answer at `head`, and was given the last request byte at `sent`
    /// (`None`: not yet).
    pub(crate) fn begin_window(&self, ledger: &mut Ledger, sent: Option<Stamp>, head: Stamp) {
        let dispatched = Stamp::from_ns(self.dispatched.load(Relaxed));
        let head_ns = head.since(ledger.started);
        let start_ns = sent.unwrap_or(head).min(head).since(ledger.started);
        if let (Some(sent), Some(dispatched)) = (sent, dispatched) {
            let from = dispatched.max(self.request_end().unwrap_or(dispatched));
            ledger.observe(Stage::Unattributed, ObservedEvent::Send, from, sent.min(head));
        }
        ledger.window = Some(UpstreamWindow { start_ns, head_ns, end_ns: head_ns });
    }

    /// Writes into `ledger` what is known only at its end, `now`.
    pub(crate) fn write_into(&self, ledger: &mut Ledger, now: Stamp) {
        let started = ledger.started;
        ledger.total_ns = now.since(started);
        ledger.request_bytes = self.request_bytes.load(Relaxed);
        ledger.response_bytes = self.response_bytes.load(Relaxed);
        let [dispatched, egress] = [&self.dispatched, &self.egress].map(|at| Stamp::from_ns(at.load(Relaxed)));
        let read = self.request_end().unwrap_or_else(|| self.request_last().min(now));
        ledger.observe(Stage::Ingress, ObservedEvent::Request, started, read.max(self.called));
        ledger.observe(Stage::Validation, ObservedEvent::Admit, self.called, dispatched.or(egress).unwrap_or(now));
        if let Some(egress) = egress {
            if let Some(window) = &mut ledger.window {
                window.end_ns = egress.since(started).max(window.head_ns);
            }
            ledger.observe(Stage::Egress, ObservedEvent::Response, egress, now);
        } else if let Some(window) = &mut ledger.window {
            window.end_ns = ledger.total_ns; // cut off mid-response, or not yet at its end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_become_the_stages_of_a_ledger_without_a_connection() {
        let at = |us: u64| Stamp::default().plus(1_000_000_000 + us * 1_000);
        let stamps = RequestStamps::new(at(20));
        stamps.on_request_bytes(7, at(30));
        stamps.on_request_end(at(30));
        stamps.on_response_bytes(9);
        stamps.end_window(at(80));
        let mut ledger = Ledger::open(at(0), 0);
        stamps.begin_window(&mut ledger, Some(at(40)), at(70));
        stamps.write_into(&mut ledger, at(100));
        assert_eq!((ledger.total_ns, ledger.request_bytes, ledger.response_bytes), (100_000, 7, 9));
        assert_eq!(ledger.window, Some(UpstreamWindow { start_ns: 40_000, head_ns: 70_000, end_ns: 80_000 }));
    }
}
