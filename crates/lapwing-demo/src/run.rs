//! The wiring of `lapwing demo`: the model server, Lapwing in front of it as a user would start it, and the load.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::options::Demo;
use super::scenario::{Played, Script};
use super::server::start_scripted_server;

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
    /// Lapwing itself could not be started.
    #[error("{0}")]
    Start(String),
}

/// A Lapwing that runs in front of the demo's server.
pub struct FrontedServer {
    /// Where it takes requests.
    pub listen: SocketAddr,
    /// Where it says what it measured.
    pub admin: SocketAddr,
    /// Stops it, and waits until it has.
    pub stop: Box<dyn FnOnce() -> io::Result<()>>,
}

/// Starts Lapwing with these settings, each a path of the configuration and its text; an error is what a user is told.
pub type StartLapwing<'a> = &'a dyn Fn(&[(&str, String)]) -> Result<FrontedServer, String>;

/// Runs until Ctrl-C or the end of `demo`'s seconds.
///
/// # Errors
///
/// If any of the parts cannot be started, or standard output cannot be written.
pub fn run(demo: Demo, places: Places, lapwing: StartLapwing<'_>) -> Result<(), DemoError> {
    run_until(demo, places, lapwing, &CancellationToken::new())
}

/// The same, until `stop` too, which Ctrl-C cancels.
pub(crate) fn run_until(
    demo: Demo,
    places: Places,
    lapwing: StartLapwing<'_>,
    stop: &CancellationToken,
) -> Result<(), DemoError> {
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
    let settings: Vec<_> = flags.into_iter().chain(demo.played.iter().flat_map(Played::settings)).collect();
    let running = lapwing(&settings).map_err(DemoError::Start)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let demo = Demo { server: Some(server), ..demo };
    let driven = runtime.block_on(async {
        let interrupted = async {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.cancel();
            }
        };
        let driving = demo.drive(running.listen, running.admin, &cache_counts, script, stop.clone());
        let mut driving = std::pin::pin!(driving);
        tokio::select! {
            driven = &mut driving => driven,
            () = interrupted => driving.await,
        }
    });
    handle.stop();
    let stopped = (running.stop)();
    driven?;
    Ok(stopped?)
}
