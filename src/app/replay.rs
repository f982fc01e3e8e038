//! `lapwing replay`: its arguments, the models that it replays to, and what it prints. `lapwing_shadow::replay` sends the recording.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use clap::Args;

use super::check;
use super::shadow::{self, TargetEngines};
use crate::config::{self, Config, Flag, Sources};
use lapwing_admin::{ComparedTargets, compared_targets};
use lapwing_net::ClientIdentity;
use lapwing_settings::{Bind, Fault, Period, ShadowTarget, Size};
use lapwing_shadow::ShadowSurface;
use lapwing_shadow::gates::{Gate, GateResult};
use lapwing_shadow::recording::{FileError, FileLimits, PairsHeader, read_recording};
use lapwing_shadow::replay::{Pace, ReplayReport, ReplaySettings, gate_in_words, replay, report_of_pairs};

/// The exit code if a gate does not hold.
const GATE_FAILED: u8 = 1;
/// The exit code for a file that is broken (`EX_DATAERR`).
const BROKEN_FILE: u8 = 65;
/// The exit code for a wrong command line or configuration.
const USAGE: u8 = 64;

/// Runs the command. `env` are the variables of the environment. Returns the exit code.
pub(crate) fn run(args: &ReplayArgs, env: Vec<(String, String)>) -> u8 {
    let report = match report_of(args, env) {
        Ok(report) => report,
        Err(ReplayFailure::Settings(faults)) => {
            // standard error may be closed
            drop(check::write_faults(&faults, &mut io::stderr().lock()));
            return USAGE;
        }
        Err(error) => {
            eprintln!("lapwing replay: {error}");
            return match error {
                ReplayFailure::Usage(_) | ReplayFailure::Settings(_) => USAGE,
                ReplayFailure::File(..) => BROKEN_FILE,
                ReplayFailure::Failed(_) => lapwing_console::admin_client::UNAVAILABLE,
            };
        }
    };
    let text = if args.json { serde_json::to_string(&report).unwrap_or_default() + "\n" } else { report.to_string() };
    // a closed pipe is not an error
    drop(io::stdout().lock().write_all(text.as_bytes()));
    let failed: Vec<&GateResult> = report.failed_gates().collect();
    failed.iter().for_each(|gate| eprintln!("lapwing replay: {}", gate_in_words(gate)));
    if failed.is_empty() { 0 } else { GATE_FAILED }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum ReplayFailure {
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The settings have faults.
    #[error("faults in the settings")]
    Settings(Vec<Fault>),
    /// The file cannot be used.
    #[error("{0} {1}")]
    File(String, FileError),
    /// Something could not be started or written.
    #[error("{0}")]
    Failed(String),
}

fn failed(error: impl std::fmt::Display) -> ReplayFailure {
    ReplayFailure::Failed(error.to_string())
}

/// What is known of the targets.
fn compared(surface: &ShadowSurface) -> ComparedTargets {
    compared_targets(surface, Ok(()))
}

fn report_of(args: &ReplayArgs, env: Vec<(String, String)>) -> Result<ReplayReport<ComparedTargets>, ReplayFailure> {
    let named = |error| ReplayFailure::File(args.file.display().to_string(), error);
    let open = || File::open(&args.file).map(BufReader::new).map_err(|error| named(error.into()));
    // a replay has no upstream; the setting is required
    let upstream = Flag { path: "upstream".into(), name: "--to".into(), text: "http://127.0.0.1:9".into() };
    let loaded = config::load(&Sources::new(args.config.clone(), env, vec![upstream])).map_err(ReplayFailure::Settings)?;
    // a report stands on its own: only what is wrong is logged, unless somebody asks for more
    let filter = if loaded.config.log == Config::default().log { "warn" } else { loaded.config.log.as_str() };
    super::log::init(filter, loaded.config.log_format);
    let limits = FileLimits { file: args.max_size.get(), ..FileLimits::default() };
    if !args.targets.is_empty() {
        return send(args, loaded.config, open()?, limits);
    }
    let mut start = [0; 64];
    let read = open()?.read(&mut start).map_err(|error| named(error.into()))?;
    if !String::from_utf8_lossy(&start[..read]).contains(PairsHeader::FORMAT) {
        return Err(ReplayFailure::Usage("--to is required: where the requests go, as in --to http://127.0.0.1:9000".to_owned()));
    }
    report_of_pairs(args.settings(&loaded.config), open()?, limits, compared).map_err(named)
}

/// Sends the recording in `file` to the targets.
fn send(
    args: &ReplayArgs,
    mut config: Config,
    file: impl BufRead,
    limits: FileLimits,
) -> Result<ReplayReport<ComparedTargets>, ReplayFailure> {
    let targets = args.named().map_err(ReplayFailure::Usage)?;
    let recording = read_recording(file, limits).map_err(|error| ReplayFailure::File(args.file.display().to_string(), error))?;
    if recording.end.is_none() {
        eprintln!("lapwing replay: {}: the recording broke off; what is there is replayed", args.file.display());
    }
    config.shadow.timeout = args.timeout;
    config.shadow.concurrency = args.max_in_flight as usize;
    let targets = targets.iter().map(|(name, target)| (name, target));
    let identity =
        ClientIdentity::load("tls.upstream", &config.tls.upstream).map_err(|fault| ReplayFailure::Settings(vec![fault]))?;
    let (named, engines) = TargetEngines::start(targets, &config, &identity).map_err(failed)?;
    engines.await_ready().map_err(ReplayFailure::Failed)?;
    let report = replay(args.settings(&config), named, recording.exchanges, compared).map_err(failed)?;
    engines.stop().map_err(failed)?;
    Ok(report)
}

/// The longest name of a target, in bytes.
const MAX_NAME: usize = 64;

/// What is replayed, where to, how fast, and what must hold.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ReplayArgs {
    /// A recording (`lapwing record`); or the pairs of an earlier replay (--pairs), whose report is made again
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where requests go, as often as there are targets: http://HOST:PORT, h2c://HOST:PORT, unix:/PATH or engine:model.onnx, each
    /// with or without a name before it. One target is compared with what was recorded; of several, the first with the others
    #[arg(long = "to", value_name = "[NAME=]TARGET", value_parser = target)]
    targets: Vec<ReplayTarget>,
    /// Send at the recorded times, so many times as fast [default: 1]
    #[arg(long, value_name = "FACTOR", group = "pace", value_parser = factor)]
    speed: Option<f64>,
    /// Send so many requests per second, evenly
    #[arg(long, value_name = "N", group = "pace", value_parser = factor)]
    rate: Option<f64>,
    /// Send with so many clients, each of which waits for its answers
    #[arg(long, value_name = "N", group = "pace", value_parser = clap::value_parser!(u32).range(1..=4096))]
    closed: Option<u32>,
    /// What must hold, or the exit code is 1: p50_ratio, p90_ratio, p99_ratio, paired_p50 (each of total, or of what stands before
    /// it, as in forward.p99_ratio and from_due.p99_ratio), mismatch, excused, unjudged, failed or lateness_p99; <=, <, >= or >; and a bound.
    /// A gate also fails if more than 5% could not be judged; unjudged<=BOUND allows another share
    #[arg(long = "gate", value_name = "GATE")]
    gates: Vec<Gate>,
    /// How long a target may take to answer
    #[arg(long, value_name = "PERIOD", default_value = "30s")]
    timeout: Period,
    /// Requests that each target has in flight at most; further ones wait, which counts as their latency
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_in_flight: u32,
    /// The largest recording that is read
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_size: Size,
    /// Write every pair to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pairs: Option<PathBuf>,
    /// Address that receives the targets' OpenTelemetry spans over gRPC while they are replayed to; their exporters must send there
    /// [default: none, and stages come from the answers alone]
    #[arg(long, value_name = "ADDRESS")]
    otlp_grpc: Option<Bind>,
    /// The same over HTTP
    #[arg(long, value_name = "ADDRESS")]
    otlp_http: Option<Bind>,
    /// YAML file with settings: shadow.compare, protocol, attribution, engine [env: LAPWING_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every figure as JSON instead of sentences
    #[arg(long)]
    json: bool,
}

/// A target of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplayTarget {
    /// `None`: it is named by its place.
    name: Option<String>,
    address: ShadowTarget,
}

impl ReplayArgs {
    /// How fast requests are sent.
    fn pace(&self) -> Pace {
        match (self.rate, self.closed) {
            (Some(rate), _) => Pace::Rate(rate),
            (_, Some(clients)) => Pace::Closed(clients as usize),
            _ => Pace::Speed(self.speed.unwrap_or(1.0)),
        }
    }

    /// What is asked for, with the sections of `config`.
    fn settings(&self, config: &Config) -> ReplaySettings {
        ReplaySettings {
            file: self.file.display().to_string(),
            pace: self.pace(),
            gates: self.gates.clone(),
            pairs: self.pairs.clone(),
            otlp_grpc: self.otlp_grpc,
            otlp_http: self.otlp_http,
            sections: shadow::settings(config),
        }
    }

    /// The targets with their names.
    ///
    /// # Errors
    ///
    /// If there is none, too many, or two have the same name.
    fn named(&self) -> Result<Vec<(String, ShadowTarget)>, String> {
        let name = |at: usize, target: &ReplayTarget| target.name.clone().unwrap_or_else(|| format!("target-{}", at + 1));
        let named: Vec<_> =
            self.targets.iter().enumerate().map(|(at, target)| (name(at, target), target.address.clone())).collect();
        if !(1..=8).contains(&named.len()) {
            return Err("--to: name 1 to 8 targets, as in --to http://127.0.0.1:9000".to_owned());
        }
        for (at, (name, _)) in named.iter().enumerate() {
            if named[..at].iter().any(|(other, _)| other == name) {
                return Err(format!("--to: two targets are named {name}"));
            }
        }
        Ok(named)
    }
}

fn target(text: &str) -> Result<ReplayTarget, String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let (name, address) = match text.split_once('=') {
        Some((name, address)) if is_name(name) => (Some(name.to_owned()), address),
        _ => (None, text),
    };
    let address = address.parse().map_err(|error: lapwing_settings::Invalid| error.reason)?;
    Ok(ReplayTarget { name, address })
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.001..=1e6).contains(number));
    number.ok_or_else(|| "must be a number from 0.001 to 1000000".to_owned())
}
