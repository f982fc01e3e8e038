//! `lapwing engine`: what is done with a model from the command line, besides serving traffic through a proxy.

pub mod cli;
mod serve;

use std::process::ExitCode;

use cli::EngineSub;

/// Does what is asked and gives the exit code. `env` are the variables of Lapwing's.
pub(super) fn run(command: &EngineSub, env: Vec<(String, String)>) -> ExitCode {
    match command {
        EngineSub::Serve(args) => serve::run(&args.sources(env)),
    }
}
