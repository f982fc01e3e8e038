//! `lapwing replay`: sends a recording to one or more targets, compares them, and says whether gates hold.
//!
//! - `args`, `schedule`: what is asked for, and when each request is due;
//! - `play`: the thread that sends, through the same stack in front of each target as copies of live requests take;
//! - `receiver`: the targets' spans, if they send any; `durations`: how late requests were sent, and what they took from then on;
//! - `accounts`: the pairs;
//! - `session` puts these together; `report` says what came of it.

mod accounts;
mod args;
mod baseline;
mod durations;
mod error;
mod play;
mod receiver;
mod report;
mod schedule;
mod session;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use self::args::ReplayArgs;
use self::baseline::{RECORDED, checked, labels, order};
use self::error::ReplayError;
use self::report::{ReplayReport, assumptions, in_words};
use super::check;
use crate::config::{self, Config, Flag, Sources};
use lapwing_admin::{ShadowSurface, compared_targets};
use lapwing_compare::outputs::Comparer;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counters, Registry};
use lapwing_shadow::gates::GateResult;
use lapwing_shadow::recording::{FileError, FileLimits, PairsHeader, read_pairs};
use lapwing_shadow::{OutputAccounts, PairTable, ShadowCounters, TargetInfo};

/// The exit code if a gate does not hold.
const GATE_FAILED: u8 = 1;
/// The exit code for a file that is broken (`EX_DATAERR`).
const BROKEN_FILE: u8 = 65;
/// The exit code for a wrong command line or configuration.
const USAGE: u8 = 64;

/// Runs the command. `env` are the variables of the environment. Returns the exit code.
pub(crate) fn run(args: &ReplayArgs, env: Vec<(String, String)>) -> u8 {
    let report = match replay(args, env) {
        Ok(report) => report,
        Err(ReplayError::Settings(faults)) => {
            // standard error may be closed
            drop(check::write_faults(&faults, &mut io::stderr().lock()));
            return USAGE;
        }
        Err(error) => {
            eprintln!("lapwing replay: {error}");
            return match error {
                ReplayError::Usage(_) | ReplayError::Settings(_) => USAGE,
                ReplayError::File(..) => BROKEN_FILE,
                ReplayError::Failed(_) => lapwing_console::admin_client::UNAVAILABLE,
            };
        }
    };
    let text = if args.json { serde_json::to_string(&report).unwrap_or_default() + "\n" } else { report.to_string() };
    // a closed pipe is not an error
    drop(io::stdout().lock().write_all(text.as_bytes()));
    let failed: Vec<&GateResult> = report.failed_gates().collect();
    failed.iter().for_each(|gate| eprintln!("lapwing replay: {}", in_words(gate)));
    if failed.is_empty() { 0 } else { GATE_FAILED }
}

fn replay(args: &ReplayArgs, env: Vec<(String, String)>) -> Result<ReplayReport, ReplayError> {
    let named = |error| ReplayError::File(args.file.display().to_string(), error);
    let open = || File::open(&args.file).map(BufReader::new).map_err(|error| named(error.into()));
    // a replay has no upstream; the setting is required
    let upstream = Flag { path: "upstream".into(), name: "--to".into(), text: "http://127.0.0.1:9".into() };
    let loaded = config::load(&Sources::new(args.config.clone(), env, vec![upstream])).map_err(ReplayError::Settings)?;
    // a report stands on its own: only what is wrong is logged, unless somebody asks for more
    let filter = if loaded.config.log == Config::default().log { "warn" } else { loaded.config.log.as_str() };
    super::log::init(filter, loaded.config.log_format);
    let limits = FileLimits { file: args.max_size.get(), ..FileLimits::default() };
    if !args.targets.is_empty() {
        return session::replay(args, &loaded.config, open()?, limits);
    }
    let mut start = [0; 64];
    let read = open()?.read(&mut start).map_err(|error| named(error.into()))?;
    if !String::from_utf8_lossy(&start[..read]).contains(PairsHeader::FORMAT) {
        return Err(ReplayError::Usage("--to is required: where the requests go, as in --to http://127.0.0.1:9000".to_owned()));
    }
    again(args, &loaded.config, open()?, limits).map_err(named)
}

/// Makes the report of an earlier replay again, from its pairs.
fn again(args: &ReplayArgs, config: &Config, file: impl io::BufRead, limits: FileLimits) -> Result<ReplayReport, FileError> {
    let labels = Arc::new(labels(config));
    let started = Stamp::now();
    let begin = |header: PairsHeader| {
        let labels_of = header.targets.iter().map(|name| labels.upstreams.intern(name)).collect();
        (header, PairTable::new(labels_of, u64::MAX, started))
    };
    let (header, pairs) = read_pairs(file, limits, begin, |(_, pairs), event| event.apply(pairs, &labels, started))?;
    let info = |name: &String| TargetInfo {
        name: name.clone(),
        address: "of an earlier replay".to_owned(),
        label: name.clone(),
        is_upstream: false,
    };
    let counters = Arc::new(Counters::default());
    let surface = ShadowSurface {
        registry: Arc::new(Mutex::new(Registry::new(config.metrics.clone(), labels.clone(), counters))),
        pairs: Arc::new(Mutex::new(pairs)),
        outputs: Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&config.shadow.compare), false))),
        counters: Arc::new(ShadowCounters::new(header.targets.len())),
        quotas: Arc::default(),
        routes: Arc::new(Vec::new),
        budget: Arc::new(|| (0, 0)),
        targets: header.targets.iter().map(info).collect(),
        order: order(header.baseline == RECORDED),
        labels,
    };
    Ok(ReplayReport {
        file: args.file.display().to_string(),
        sending: None,
        baseline: header.baseline,
        gates: checked(&args.gates, &surface, None, header.requests),
        targets: compared_targets(&surface, Ok(())),
        assumptions: assumptions(),
    })
}
