//! `lapwing engine`: serves, inspects, times and quantises models from the command line, without the proxy.

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
pub(crate) mod trial;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

pub use cli::EngineSub;
use error::ToolError;
use trial::LoadLimits;

/// Runs a command and returns the exit code: 1 for any error, which is written to standard error; 64 if settings are at fault.
/// `env` holds the `LAPWING_` variables.
pub(crate) fn run(command: &EngineSub, env: Vec<(String, String)>) -> ExitCode {
    let mut out = io::stdout();
    let limits = LoadLimits::default();
    let tried = |path: &Path| trial::load(path, limits).map_err(ToolError::told);
    let (name, done) = match command {
        EngineSub::Serve(args) => return serve::run(args, env),
        EngineSub::TryLoad(args) => return trial::run(args, &mut out),
        EngineSub::Inspect(args) => ("inspect", tried(&args.model).and_then(|()| inspect::run(args, &mut out))),
        EngineSub::Bench(args) => ("bench", tried(&args.model).and_then(|()| bench::run(args, &mut out))),
        EngineSub::Quantize(args) => ("quantize", tried(&args.model).and_then(|()| quantize::run(args, &mut out))),
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

/// The name of a model in rows: its file's name without the extension.
fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Writes a value as one line of JSON.
fn line(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), ToolError> {
    let text = serde_json::to_string(value).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    // a row may take seconds, and a reader at the other end of a pipe wants each one at once
    Ok(out.flush()?)
}

#[cfg(test)]
mod documented;
#[cfg(test)]
use documented::documented;
