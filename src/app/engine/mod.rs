//! `lapwing engine`: what is done with a model from the command line, besides serving traffic through a proxy.

mod bench;
pub mod cli;
mod error;
mod inspect;
mod machine;
mod numbers;
mod quantize;
mod serve;
mod shapes;
mod synthetic_inputs;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

pub use cli::EngineSub;
use error::ToolError;

/// Does what is asked and gives the exit code: 1 for any fault, which is told on standard error; 64 where settings are at fault.
/// `env` are the variables of Lapwing's.
pub(super) fn run(command: &EngineSub, env: Vec<(String, String)>) -> ExitCode {
    let mut out = io::stdout();
    let (name, done) = match command {
        EngineSub::Serve(args) => return serve::run(args, env),
        EngineSub::Inspect(args) => ("inspect", inspect::run(args, &mut out)),
        EngineSub::Bench(args) => ("bench", bench::run(args, &mut out)),
        EngineSub::Quantize(args) => ("quantize", quantize::run(args, &mut out)),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_nobody_listening() {
                eprintln!("lapwing engine {name}: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The name that rows give a model: its file's, without the ending.
fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Writes a value as one line of JSON.
fn line(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), ToolError> {
    let text = serde_json::to_string(value).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    // a row may take seconds, and whoever reads them through a pipe wants each when it is there
    Ok(out.flush()?)
}

#[cfg(test)]
mod documented;
#[cfg(test)]
use documented::documented;
