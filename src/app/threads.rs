//! Threads of the control plane, each with a runtime for itself.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::Runtime;

use super::start_error::StartError;

/// Runs `run` on a thread with this name.
pub(crate) fn spawn<F>(name: &str, run: impl FnOnce() -> F + Send + 'static) -> Result<JoinHandle<io::Result<()>>, StartError>
where
    F: Future<Output = io::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
    spawn_on(runtime, name, run)
}

/// Runs `run` in `runtime` on a thread of its own.
pub(crate) fn spawn_on<F>(
    runtime: Runtime,
    name: &str,
    run: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<io::Result<()>>, StartError>
where
    F: Future<Output = io::Result<()>>,
{
    let run = move || runtime.block_on(async { run().await });
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(StartError::Thread)
}

/// Waits for a thread to end; the error with which it did.
pub(crate) fn join(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}
