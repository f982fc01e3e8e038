//! A server's recorder: how one is made, what it tells, and the thread that records every 20 ms what waits.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::recording::{Hook, Recording};
use crate::stats_service::StatsService;
use lapwing_ledger::Exchange;
use lapwing_metrics::{Config, Counter, Labels, Order};

/// How often closed ledgers are recorded.
const EVERY: Duration = Duration::from_millis(20);

/// Records the requests of a server. Clones are the same recorder; it runs until the last one, and the last layer, is dropped.
#[derive(Clone, Debug)]
pub struct ServerRecorder(Arc<Recording>);

/// How a recorder is made.
pub struct RecorderBuilder {
    name: String,
    config: Config,
    hooks: Vec<Hook>,
}

impl fmt::Debug for RecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderBuilder").field("name", &self.name).field("config", &self.config).finish_non_exhaustive()
    }
}

impl RecorderBuilder {
    /// Bounds and budgets other than the defaults.
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Calls `hook` with each exchange, in the recorder's thread, before it is recorded. It must not call the recorder. A panic is caught
    /// and counted, and costs that exchange.
    #[must_use]
    pub fn on_exchange(mut self, hook: impl FnMut(&Exchange, &Labels) + Send + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Starts the recorder.
    ///
    /// # Errors
    ///
    /// When its thread cannot be started.
    pub fn start(self) -> io::Result<ServerRecorder> {
        let recording = Recording::new(&self.name, self.config, self.hooks);
        let weak = Arc::downgrade(&recording);
        thread::Builder::new().name("lapwing-tower".to_owned()).spawn(move || run(&weak))?;
        Ok(ServerRecorder(recording))
    }
}

impl ServerRecorder {
    /// A recorder that is to be configured, of the server `name`, which is the label `upstream`.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> RecorderBuilder {
        RecorderBuilder { name: name.into(), config: Config::default(), hooks: Vec::new() }
    }

    /// A recorder with the default bounds: 256 series, 200 routes, 100 models.
    ///
    /// # Errors
    ///
    /// When its thread cannot be started.
    pub fn start(name: impl Into<String>) -> io::Result<Self> {
        Self::builder(name).start()
    }

    /// Records what waits, now. The pages of [`Self::stats_service`] do so by themselves.
    pub fn flush(&self) {
        self.0.flush();
    }

    /// The latest exchanges, at most `limit`, the last one first.
    #[must_use]
    pub fn recent(&self, limit: usize) -> Vec<Arc<Exchange>> {
        self.0.registry.lock().exchanges(Order::Recent, limit)
    }

    /// How many exchanges were served but not recorded, because the queue was full or a hook panicked.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.counters.get(Counter::DroppedChannelFull) + self.0.counters.get(Counter::DroppedPanic)
    }

    /// How often a handler said something of a request that had ended.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.0.counters.get(Counter::LateEvents)
    }

    /// A service that answers `/stats`, `/exchanges` and `/metrics`.
    #[must_use]
    pub fn stats_service(&self) -> StatsService {
        StatsService::new(self.0.clone())
    }

    pub(crate) fn recording(&self) -> Arc<Recording> {
        self.0.clone()
    }
}

fn run(recording: &Weak<Recording>) {
    while let Some(recording) = recording.upgrade() {
        recording.flush();
        drop(recording);
        thread::sleep(EVERY);
    }
}
