//! `lapwing leave`: tells a running Lapwing that its clients are to go elsewhere, as the preStop hook of its container.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use clap::Args;
use http::Request;

use crate::admin_client::{AdminArgs, UNAVAILABLE, block_on};

/// How often the server is asked whether it is there.
const EVERY: Duration = Duration::from_millis(250);

/// Which Lapwing is told, and how long its container is to stay.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LeaveArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Wait until nothing listens there any more: the server of a pod whose containers all end at once
    #[arg(long, value_name = "ADDRESS")]
    wait_for: Option<SocketAddr>,
    /// How long to wait at least: while the pod is taken out of its Services
    #[arg(long, value_name = "SECONDS", default_value_t = 5, requires = "wait_for")]
    at_least: u32,
    /// How long to wait at most: less than the pod's terminationGracePeriodSeconds
    #[arg(long, value_name = "SECONDS", default_value_t = 25, requires = "wait_for")]
    at_most: u32,
}

/// Runs the command. Returns the exit code.
pub fn run(args: &LeaveArgs) -> u8 {
    let client = args.admin.client();
    let told = block_on(async { client.send(Request::post("/leave")).await.map(drop) });
    if let Some(server) = args.wait_for {
        wait(server, args.at_least, args.at_most);
    }
    match told {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("lapwing leave: {reason}");
            UNAVAILABLE
        }
    }
}

/// Waits until nothing listens at an address.
fn wait(server: SocketAddr, at_least: u32, at_most: u32) {
    let rounds = |seconds: u32| u128::from(seconds) * 1000 / EVERY.as_millis();
    for round in 0..rounds(at_most) {
        let is_gone = TcpStream::connect_timeout(&server, EVERY).is_err();
        if is_gone && round >= rounds(at_least) {
            break;
        }
        thread::sleep(EVERY);
    }
}
