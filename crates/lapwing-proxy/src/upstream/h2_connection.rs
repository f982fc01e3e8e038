//! One HTTP/2 connection to the upstream, and the one that takes its place when it ends, as those know it who share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::watch;

use super::h2_upload::SettingsHeard;
use crate::connection::{Greeting, SocketMeter, StreamLoad};

/// Streams of one connection, at most; so many may be opened before the upstream has said how many it takes.
pub(crate) const MAX_STREAMS: u32 = 100;

/// How much a connection takes ahead of those who read, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub(crate) stream: u32,
    pub(crate) connection: u32,
}

/// A connection, which is opened when the first stream is asked for.
#[derive(Debug)]
pub(crate) struct H2Connection {
    pub(crate) sender: tokio::sync::Mutex<Option<Sender>>,
    pub(crate) windows: Windows,
    pub(crate) load: Arc<StreamLoad>,
    /// As the upstream has said.
    pub(crate) max_streams: Arc<AtomicU32>,
    /// It was used since somebody last asked.
    pub(crate) is_used: AtomicBool,
}

/// What opens streams on one connection.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) streams: SendRequest<Bytes>,
    pub(crate) meter: Arc<SocketMeter>,
    pub(crate) state: Arc<ConnectionState>,
}

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// It has ended, or its end was announced.
    pub(crate) is_over: AtomicBool,
    /// The upstream's `SETTINGS` apply.
    pub(crate) has_settings: AtomicBool,
    /// What the upstream began with. The sender goes with the connection.
    pub(crate) heard: watch::Receiver<Heard>,
}

/// What was heard of the upstream's beginning.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) greeting: Option<Greeting>,
    /// Its `SETTINGS` apply.
    pub(crate) has_settings: bool,
}

impl ConnectionState {
    /// Waits for the upstream's `SETTINGS`, or for the connection's end; `None` if they apply.
    pub(crate) fn settings(&self) -> Option<SettingsHeard> {
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
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_over.load(Relaxed)
    }

    /// It opens no stream any more.
    pub(crate) fn end(&self) {
        self.state.is_over.store(true, Relaxed);
    }
}

impl H2Connection {
    /// None yet, with so much room.
    pub(crate) fn new(windows: Windows) -> Self {
        Self {
            sender: tokio::sync::Mutex::default(),
            windows,
            load: Arc::default(),
            max_streams: Arc::new(AtomicU32::new(MAX_STREAMS)),
            is_used: AtomicBool::new(true),
        }
    }

    /// Whether another stream would be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.load.waiting() == 0 && self.load.open() < self.max_streams.load(Relaxed)
    }

    /// What opens streams on the connection, if there is one and nobody is opening another.
    pub(crate) fn known_sender(&self) -> Option<Sender> {
        let slot = self.sender.try_lock().ok()?;
        slot.as_ref().filter(|sender| !sender.is_over()).cloned()
    }
}
