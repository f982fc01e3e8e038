//! `lapwing pre-stop`: a sidecar beside the server gets SIGTERM when the server gets it; as a preStop hook, this keeps it until the server
//! takes no connection any more, so that what the server still answers has a way out.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use clap::Args;

/// How often the server is asked.
const EVERY: Duration = Duration::from_millis(250);

/// What `lapwing pre-stop` is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PreStopArgs {
    /// The server's address
    #[arg(long, value_name = "ADDRESS")]
    upstream: SocketAddr,
    /// How long to wait at least: while the pod is taken out of its Services
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    at_least: u32,
    /// How long to wait at most: less than the pod's terminationGracePeriodSeconds
    #[arg(long, value_name = "SECONDS", default_value_t = 25)]
    at_most: u32,
}

/// Waits; the exit code.
pub(crate) fn run(args: &PreStopArgs) -> i32 {
    let rounds = |seconds: u32| u128::from(seconds) * 1000 / EVERY.as_millis();
    for round in 0..rounds(args.at_most) {
        let is_gone = TcpStream::connect_timeout(&args.upstream, EVERY).is_err();
        if is_gone && round >= rounds(args.at_least) {
            break;
        }
        thread::sleep(EVERY);
    }
    0
}
