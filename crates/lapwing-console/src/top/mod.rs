//! `lapwing top`: a live view of a running Lapwing in a terminal, fed by `/stats/stream`; lines where there is no terminal.
//!
//! - `feed`: reads the stream, and connects again when it breaks off;
//! - `state`: what is shown, and what a key changes in it; `rows` makes the lines of the table of it;
//! - `draw`: the screen;
//! - `slowest`: reads the slowest requests of a row;
//! - `screen`, `lines`: the loop with a terminal, and without.

mod args;
mod draw;
mod feed;
mod lines;
mod rows;
mod screen;
mod signals;
mod slowest;
mod state;

use std::io::{self, IsTerminal};

pub use self::args::TopArgs;
use self::signals::Signals;

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
