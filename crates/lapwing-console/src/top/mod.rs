//! `lapwing top`: a live view of a running Lapwing in a terminal, fed by `/stats/stream`; lines where there is no terminal.
//!
//! - `feed`: reads the stream, and connects again when it breaks off;
//! - `state`: what is shown, and what a key changes in it; `rows` makes the lines of the table of it;
//! - `draw`: the screen;
//! - `slowest`: reads the slowest requests of a row;
//! - `screen`, `lines`: the loop with a terminal, and without.

mod draw;
mod feed;
mod lines;
mod rows;
mod screen;
mod slowest;
mod state;

use std::io::{self, IsTerminal};

use clap::Args;
use clap::builder::PossibleValuesParser;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::admin_client::AdminArgs;
use super::stats::NameFilter;
use lapwing_metrics::Window;

/// What to show, and of which Lapwing.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The window of the figures
    #[arg(long, value_name = "WINDOW", default_value = Window::TenSeconds.name())]
    #[arg(value_parser = PossibleValuesParser::new(Window::ALL.map(Window::name)))]
    window: String,
    #[command(flatten)]
    names: NameFilter,
}

impl TopArgs {
    /// The path of the stream.
    fn path(&self) -> String {
        self.names.query("/stats/stream", &[("window", &self.window)])
    }
}

/// Runs the command until a key or a signal ends it. Returns the exit code.
pub fn run(args: &TopArgs) -> u8 {
    let ended = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            let signals = Signals::listen()?;
            if io::stdout().is_terminal() { screen::show(args, signals).await } else { lines::print(args, signals).await }
        })
    });
    match ended {
        Ok(code) => code,
        // who reads the lines has gone
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("lapwing top: {error}");
            1
        }
    }
}

/// The signals that end the command: the terminal is restored before it ends.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one, and returns the exit code that a shell reports for it.
    async fn first(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 128 + 15,
            _ = self.interrupt.recv() => 128 + 2,
            _ = self.hang_up.recv() => 128 + 1,
        }
    }
}
