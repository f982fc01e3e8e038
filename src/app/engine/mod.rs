//! `lapwing engine`: serves, inspects, times and quantises models from the command line, without the proxy.

mod bench;
pub mod cli;
mod error;
mod inspect;
mod machine;
mod numbers;
mod output;
mod quantize;
mod serve;
mod shapes;
mod synthetic_inputs;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use super::trial::{self, LoadLimits, Trial};
pub use cli::EngineSub;
use error::ToolError;

/// Runs a command and returns the exit code: 1 for any error, which is written to standard error; 64 if settings are at fault.
/// `env` holds the `LAPWING_` variables.
pub(crate) fn run(command: &EngineSub, env: Vec<(String, String)>) -> ExitCode {
    let mut out = io::stdout();
    let limits = LoadLimits::default();
    let tried = |path: &Path| trial::load(path, &Trial::new(limits)).map_err(ToolError::told);
    let (name, done) = match command {
        EngineSub::Serve(args) => return serve::run(args, env),
        EngineSub::TryLoad(args) => return trial::run(args, &mut out),
        EngineSub::Inspect(args) => ("inspect", inspect::run(args, &mut out)),
        EngineSub::Bench(args) => ("bench", bench::run(args, &mut out)),
        EngineSub::Quantize(args) => ("quantize", tried(&args.model).and_then(|_| quantize::run(args, &mut out))),
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

#[cfg(test)]
mod documented;
#[cfg(test)]
use documented::documented;
