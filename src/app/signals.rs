//! SIGTERM and SIGINT: the first signal starts an orderly shutdown, the second ends the process at once. SIGHUP reloads, where there is
//! something to reload.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often a process looks at itself while no signal arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What a process does until a signal ends it.
pub(crate) trait Watched {
    /// Called every half a second. Whether a thread has ended unexpectedly, which ends the process.
    fn poll(&mut self) -> bool;

    /// Called at SIGHUP, if it is listened to.
    fn hang_up(&mut self) {}
}

/// The signals that end the process, received from the creation of this value on.
pub(crate) struct Signals {
    runtime: Runtime,
    term: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Starts to listen; to SIGHUP only with `reloads`, without which it ends the process. Called before anything is served, so that every
    /// later signal leads to an orderly shutdown.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub(crate) fn listen(reloads: bool) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let (term, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let hang_up = reloads.then(|| signal(SignalKind::hangup())).transpose()?;
        drop(entered);
        Ok(Self { runtime, term, interrupt, hang_up })
    }
}

/// Blocks until a signal that ends the process arrives or a thread has failed, and returns which. From then on a further signal ends the
/// process at once, with the exit status that a shell reports for that signal.
pub(crate) fn wait(mut signals: Signals, watched: &mut impl Watched) -> &'static str {
    let runtime = signals.runtime;
    let by = runtime.block_on(first(&mut signals.term, &mut signals.interrupt, &mut signals.hang_up, watched));
    let (mut term, mut interrupt) = (signals.term, signals.interrupt);
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

async fn first(
    term: &mut Signal,
    interrupt: &mut Signal,
    hang_up: &mut Option<Signal>,
    watched: &mut impl Watched,
) -> &'static str {
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    loop {
        let hung_up = async {
            match hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = term.recv() => return "SIGTERM",
            _ = interrupt.recv() => return "SIGINT",
            _ = hung_up => watched.hang_up(),
            _ = polls.tick() => {
                if watched.poll() {
                    return "a thread ended on its own";
                }
            }
        }
    }
}
