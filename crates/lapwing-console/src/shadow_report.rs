//! `lapwing shadow report`: prints what a running Lapwing's `/shadow` says.

use std::io::{self, Write};

use clap::{Args, Subcommand};

use super::admin_client::{AdminArgs, UNAVAILABLE, block_on};

/// `lapwing shadow`, and what it does.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum ShadowSub {
    /// Print what copies of requests say of each shadow target
    #[command(after_help = "Examples:\n  lapwing shadow report\n  lapwing shadow report --admin 10.0.0.5:9464 --json")]
    Report(ShadowReportArgs),
}

/// What to print, and where it is asked for.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ShadowReportArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print every figure as JSON instead of sentences
    #[arg(long)]
    json: bool,
}

/// Runs the command. Returns the exit code.
pub fn run(command: &ShadowSub) -> u8 {
    let ShadowSub::Report(ShadowReportArgs { admin, json }) = command;
    let kind = if *json { "application/json" } else { "text/plain" };
    match block_on(async { admin.client().get("/shadow", kind).await }) {
        Ok(text) => {
            let end: &[u8] = if text.ends_with(b"\n") { b"" } else { b"\n" };
            // a closed pipe is not an error
            drop(io::stdout().lock().write_all(&[&text[..], end].concat()));
            0
        }
        Err(reason) => {
            eprintln!("lapwing shadow report: {reason}");
            UNAVAILABLE
        }
    }
}
