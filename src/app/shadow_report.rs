//! `lapwing shadow report`: prints what a running Lapwing's `/shadow` says.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Request;
use http::header::ACCEPT;
use http_body_util::Full;

use super::admin_token::TokenArgs;
use crate::net::{Client, ClientLimits, Target};
use crate::settings::{Bind, Upstream};

/// The exit code when Lapwing does not answer (`EX_UNAVAILABLE`).
pub(super) const UNAVAILABLE: u8 = 69;

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
    /// The admin address of the running Lapwing
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464", value_parser = admin_address)]
    admin: String,
    #[command(flatten)]
    token: TokenArgs,
    /// Print every figure as JSON instead of sentences
    #[arg(long)]
    json: bool,
}

/// Checks that `text` is `HOST:PORT`, and returns it with its host: `:9464` is this machine.
pub(super) fn admin_address(text: &str) -> Result<String, String> {
    match text.parse::<Bind>() {
        Ok(bind) => Ok(bind.reached_at().unwrap_or_else(|| bind.get()).to_string()),
        // the name of another machine
        Err(error) => match format!("http://{text}").parse() {
            Ok(Upstream::Http { authority, .. }) if text.contains(':') => Ok(authority),
            _ => Err(error.reason),
        },
    }
}

/// Runs the command. Returns the exit code.
pub(super) fn run(command: &ShadowSub) -> u8 {
    let ShadowSub::Report(args) = command;
    match ask(args) {
        Ok(text) => {
            // a closed pipe is not an error
            drop(io::stdout().lock().write_all(&text));
            0
        }
        Err((code, reason)) => {
            eprintln!("lapwing shadow report: {}: {reason}", args.admin);
            code
        }
    }
}

fn ask(args: &ShadowReportArgs) -> Result<Bytes, (u8, String)> {
    let failed = |code| move |reason: &dyn std::fmt::Display| (code, reason.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(UNAVAILABLE)(&error))?;
    let limits = ClientLimits { timeout: Duration::from_secs(10), max_body: 64 << 20, ..ClientLimits::default() };
    let client: Client = Client::new(Target::Tcp(args.admin.clone()), limits);
    let kind = if args.json { "application/json" } else { "text/plain" };
    let request = args.token.sign(Request::get("/shadow").header(ACCEPT, kind)).map_err(|reason| (UNAVAILABLE, reason))?;
    let request = request.body(Full::default()).map_err(|error| failed(UNAVAILABLE)(&error))?;
    let response = runtime.block_on(client.fetch(request)).map_err(|error| failed(UNAVAILABLE)(&error))?;
    if !response.status().is_success() {
        return Err((UNAVAILABLE, format!("answered {}; is it the admin address of a Lapwing?", response.status())));
    }
    let mut text = response.into_body();
    if args.json {
        text = [&text[..], b"\n"].concat().into();
    }
    Ok(text)
}
