//! The wiring of `lapwing demo`: the model server, Lapwing in front of it as a user would start it, and the load.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Demo;
use super::scenario::{Played, Script};
use super::server::start_scripted_server;
use crate::app::running::{self, StartError};
use crate::config::{self, Flag, Sources};
use lapwing_settings::Fault;

/// The addresses on which Lapwing listens; `None` is any free port.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    /// Requests.
    pub listen: Option<SocketAddr>,
    /// The admin surfaces.
    pub admin: Option<SocketAddr>,
}

/// Why the demo could not run.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The server, the load or the table failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Lapwing itself failed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The demo's configuration is invalid: a bug, or addresses that collide.
    #[error("{0}")]
    Faults(String),
}

/// Runs until Ctrl-C or the end of `demo`'s seconds.
///
/// # Errors
///
/// If any of the parts cannot be started, or standard output cannot be written.
pub fn run(demo: Demo, places: Places) -> Result<(), DemoError> {
    run_until(demo, places, &CancellationToken::new())
}

/// The same, until `stop` too, which Ctrl-C cancels.
pub(crate) fn run_until(demo: Demo, places: Places, stop: &CancellationToken) -> Result<(), DemoError> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // the server must know where to send its spans before Lapwing, which needs the server's address, is started
    let otlp = TcpListener::bind(any)?.local_addr()?;
    let script = demo.played.as_ref().map(|played| Arc::new(Script::new(&played.scenario, played.level, played.seed)));
    let (server, handle) = start_scripted_server(otlp, script.clone())?;
    let (upstream, _relay) = match &demo.played {
        Some(played) => played.link(server)?,
        None => (server, None),
    };
    let cache_counts = Arc::clone(handle.cache_counts());
    let flags = [
        ("upstream", format!("http://{upstream}")),
        ("listen", places.listen.unwrap_or(any).to_string()),
        ("admin", places.admin.unwrap_or(any).to_string()),
        ("otlp_grpc", otlp.to_string()),
        ("otlp_http", "off".to_owned()),
    ];
    let flag = |(path, text): (&str, String)| Flag { path: path.to_owned(), name: format!("--{path}"), text };
    let settings = demo.played.iter().flat_map(Played::settings);
    let sources = Sources { flags: flags.into_iter().chain(settings).map(flag).collect(), ..Sources::default() };
    let loaded = config::load(&sources).map_err(|faults| DemoError::Faults(listed(&faults)))?;
    let running = running::start(&loaded)?;
    let at = running.addresses();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let demo = Demo { server: Some(server), ..demo };
    let driven = runtime.block_on(async {
        let interrupted = async {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.cancel();
            }
        };
        let driving = demo.drive(at.listen, at.admin, &cache_counts, script, stop.clone());
        let mut driving = std::pin::pin!(driving);
        tokio::select! {
            driven = &mut driving => driven,
            () = interrupted => driving.await,
        }
    });
    handle.stop();
    let stopped = running.stop();
    driven?;
    Ok(stopped?)
}

fn listed(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; ")
}
