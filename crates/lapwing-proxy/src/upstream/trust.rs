//! Whether the upstream keeps a connection open after its answer, as HTTP/1.1 says that it does unless it announces otherwise.
//!
//! llama.cpp closes each connection just after a stream, without `Connection: close` and with a promise to keep it. A request that is
//! written to such a connection meets the close on its way and is lost, although the client did nothing wrong. So an answer without a
//! length has to prove first that connections outlive it: its connection rests, and carries the next request only if it is still open
//! after that. Answers with a length are trusted until one is seen to fail.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How long a connection rests while answers like its last are not trusted.
pub(crate) const REST: Duration = Duration::from_millis(250);
/// How many rests in a row a connection has to outlive before such answers are trusted again, once one was closed.
const PROOFS: u32 = 64;

/// What an answer says of its length.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Framing {
    /// It is known before the first byte.
    #[default]
    Sized,
    /// It ends when the upstream says so: streams.
    Open,
}

/// What is known of one upstream, for each [`Framing`]: how many rests are still to be outlived.
#[derive(Debug)]
pub(crate) struct Trust([AtomicU32; 2]);

impl Default for Trust {
    fn default() -> Self {
        Self([AtomicU32::new(0), AtomicU32::new(1)])
    }
}

impl Trust {
    fn unproven(&self, framing: Framing) -> &AtomicU32 {
        let [sized, open] = &self.0;
        match framing {
            Framing::Sized => sized,
            Framing::Open => open,
        }
    }

    /// Whether a connection may carry a request at once after such an answer.
    pub(crate) fn is_trusted(&self, framing: Framing) -> bool {
        self.unproven(framing).load(Relaxed) == 0
    }

    /// A connection was closed just after such an answer.
    pub(crate) fn on_closed(&self, framing: Framing) {
        if self.unproven(framing).swap(PROOFS, Relaxed) < PROOFS {
            tracing::debug!(
                ?framing,
                "the upstream closes connections after such answers without saying so: they rest before they are used again"
            );
        }
    }

    /// A connection outlived its rest after such an answer.
    pub(crate) fn on_kept(&self, framing: Framing) {
        let _ = self.unproven(framing).fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_proves_that_connections_outlive_it_and_one_that_does_not_takes_many_proofs() {
        let trust = Trust::default();
        assert!(trust.is_trusted(Framing::Sized) && !trust.is_trusted(Framing::Open));
        trust.on_kept(Framing::Open);
        assert!(trust.is_trusted(Framing::Open));
        trust.on_kept(Framing::Open);
        trust.on_closed(Framing::Open);
        (1..PROOFS).for_each(|_| trust.on_kept(Framing::Open));
        assert!(!trust.is_trusted(Framing::Open) && trust.is_trusted(Framing::Sized));
        trust.on_kept(Framing::Open);
        assert!(trust.is_trusted(Framing::Open));
    }
}
