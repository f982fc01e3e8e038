//! SIGTERM and SIGINT: the first signal starts an orderly shutdown, the second ends the process at once.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often `has_failed` is checked while no signal arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The signals that end the process, received from the creation of this value on.
pub(crate) struct Signals {
    runtime: Runtime,
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen. Called before anything is served, so that every later signal leads to an orderly shutdown.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub(crate) fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let (term, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        drop(entered);
        Ok(Self { runtime, term, interrupt })
    }
}

/// Blocks until a signal arrives or `has_failed` returns true, and returns which. From then on a further signal ends the
/// process at once, with the exit status that a shell reports for that signal.
pub(crate) fn wait(signals: Signals, has_failed: impl Fn() -> bool) -> &'static str {
    let Signals { runtime, mut term, mut interrupt } = signals;
    let by = runtime.block_on(first(&mut term, &mut interrupt, has_failed));
    let second = move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = term.recv() => 128 + 15,
                _ = interrupt.recv() => 128 + 2,
            }
        });
        tracing::warn!("a second signal: ending at once");
        #[allow(clippy::disallowed_methods, reason = "the user asked twice")]
        std::process::exit(code)
    };
    if let Err(error) = std::thread::Builder::new().name("lapwing-signal".to_owned()).spawn(second) {
        tracing::warn!(%error, "a second signal will have no effect");
    }
    by
}

async fn first(term: &mut Signal, interrupt: &mut Signal, has_failed: impl Fn() -> bool) -> &'static str {
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            _ = term.recv() => return "SIGTERM",
            _ = interrupt.recv() => return "SIGINT",
            _ = polls.tick() => {
                if has_failed() {
                    return "a thread ended on its own";
                }
            }
        }
    }
}
