//! Runs the command of the command line and returns the exit code.

use std::process::ExitCode;

use super::cli::Command;
use super::file_watch::FileWatch;
use super::reload::Reloading;
use super::running::{self, Running};
use super::{check, cli, cluster, demo, doctor, engine, log, replay, service_manager, signals, upstream_flags, warm};
use crate::config::{self, Loaded, Sources};
use lapwing_console::{diagnose, fleet, record, shadow_report, stats};

/// Does what the command line asks for.
#[must_use]
pub fn run() -> ExitCode {
    #[cfg(feature = "engine")]
    super::trial::enable();
    if let Err(error) = lapwing_net::raise_descriptor_limit() {
        eprintln!("lapwing: cannot raise the limit on open files: {error}");
    }
    match cli::parse(std::env::args_os(), std::env::vars_os()) {
        Ok(Command::Serve(sources)) => serve(sources),
        Ok(Command::Check(sources)) => exit(check::check(&sources)),
        Ok(Command::Doctor(args, sources)) => exit(doctor::run(&args, &sources)),
        Ok(Command::Demo(args)) => demo::run_command(&args),
        Ok(Command::Cluster(command)) => exit(cluster::run(&command)),
        Ok(Command::Engine(command, env)) => engine::run(&command, env),
        Ok(Command::Shadow(command)) => exit(shadow_report::run(&command).into()),
        Ok(Command::Stats(args)) => exit(stats::run(&args).into()),
        Ok(Command::Diagnose(args)) => exit(diagnose::run(&args).into()),
        #[cfg(feature = "top")]
        Ok(Command::Top(args)) => exit(lapwing_console::top::run(&args).into()),
        Ok(Command::Completions(shell)) => exit(cli::print_completions(shell)),
        Ok(Command::Schema(args)) => exit(cli::print_schema(&args)),
        Ok(Command::Man(args)) => exit(cli::print_man(&args)),
        Ok(Command::Record(args)) => exit(record::run(&args).into()),
        Ok(Command::Merge(args)) => exit(fleet::merge(&args).into()),
        Ok(Command::Compare(args)) => exit(fleet::compare(&args).into()),
        Ok(Command::Replay(args, env)) => exit(replay::run(&args, env).into()),
        Ok(Command::Warm(args, env)) => exit(warm::run(&args, env).into()),
        Ok(Command::UpstreamFlags(args)) => exit(upstream_flags::print(&args)),
        Err(error) => {
            let is_fault = error.use_stderr();
            // a closed pipe is not an error
            drop(error.print());
            exit(if is_fault { check::USAGE } else { 0 })
        }
    }
}

fn serve(sources: Sources) -> ExitCode {
    let watch = FileWatch::new(sources.file.iter().cloned().collect());
    let loaded = match config::load(&sources) {
        Ok(loaded) => loaded,
        Err(faults) => {
            // standard error may be closed
            drop(check::write_faults(&faults, &mut std::io::stderr().lock()));
            return exit(check::USAGE);
        }
    };
    let filter = log::init(&loaded.config.log, loaded.config.log_format);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let signals = match signals::Signals::listen(true) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("lapwing: cannot listen to signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    match start(&loaded) {
        Ok(mut running) => {
            service_manager::ready(&running.summary());
            let identities = running.take_watches();
            let by = signals::wait(signals, &mut Reloading { running: &running, sources, watch, identities, filter });
            let drain_timeout = running.config().config.drain_timeout;
            service_manager::stopping(drain_timeout);
            tracing::info!(%drain_timeout, "{by}: draining; a second signal ends at once");
            end(running)
        }
        Err(code) => code,
    }
}

fn start(loaded: &Loaded) -> Result<Running, ExitCode> {
    let running = running::start(loaded).map_err(|error| {
        eprintln!("lapwing: {error}");
        ExitCode::FAILURE
    })?;
    let at = running.addresses();
    let receiver = |at: Option<std::net::SocketAddr>| at.map_or_else(|| "off".to_owned(), |at| at.to_string());
    tracing::info!(
        listen = %at.listen,
        upstream = running::upstreams(&loaded.config),
        admin = %at.admin,
        otlp_grpc = receiver(at.otlp_grpc),
        otlp_http = receiver(at.otlp_http),
        engine = receiver(at.engine),
        workers = loaded.config.proxy.worker_threads(),
        "lapwing {} is ready", env!("CARGO_PKG_VERSION")
    );
    Ok(running)
}

fn end(running: Running) -> ExitCode {
    match running.stop() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "a thread failed");
            ExitCode::FAILURE
        }
    }
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
