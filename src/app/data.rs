//! The data plane's threads: one current-thread runtime for each worker, which does nothing but carry requests.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::net;
use crate::proxy::{self, Parts};

/// Binds the workers' listeners: all on one address, of which the first may choose the port.
pub(super) fn bind(address: SocketAddr, workers: usize, backlog: u32) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let first = net::bind(address, backlog, workers > 1)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..workers {
        listeners.push(net::bind(address, backlog, true)?);
    }
    Ok((address, listeners))
}

/// Starts the workers. They stop accepting at `stop`, and end when their requests have, or after `drain`.
pub(super) fn spawn(
    listeners: Vec<TcpListener>,
    parts: &Parts,
    stop: &CancellationToken,
    drain: Duration,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let spawn_one = |(i, listener): (usize, TcpListener)| {
        let (parts, stop) = (parts.clone(), stop.clone());
        std::thread::Builder::new().name(format!("lapwing-data-{i}")).spawn(move || worker(listener, parts, stop, drain))
    };
    listeners.into_iter().enumerate().map(spawn_one).collect()
}

fn worker(listener: TcpListener, parts: Parts, stop: CancellationToken, drain: Duration) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    runtime.block_on(async {
        tokio::select! {
            served = proxy::serve(listener, parts, stop.clone()) => served,
            () = too_late => {
                tracing::warn!(?drain, "requests were still in flight after drain_timeout and are cut off");
                Ok(())
            }
        }
    })
}
