//! `lapwing warm`: its arguments, where requests go, and what it prints. `lapwing_shadow::warm` sends them.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::Args;

use super::check;
use crate::config::{self, Config, Flag, Sources};
use lapwing_console::admin_client::{AdminArgs, UNAVAILABLE, block_on};
use lapwing_net::{ClientIdentity, Target};
use lapwing_settings::{Fault, HttpScheme, Period, Share, Size, Upstream};
use lapwing_shadow::recording::{FileError, FileLimits};
use lapwing_shadow::warm::{WarmClients, WarmError, WarmLimits, WarmPace, WarmReport, read_warm_requests, warm};

/// The exit code if nothing is kept, or a request failed.
const NOT_WARM: u8 = 1;
/// The exit code for a file that is broken (`EX_DATAERR`).
const BROKEN_FILE: u8 = 65;
/// The exit code for a wrong command line or configuration.
const USAGE: u8 = 64;

/// Which requests are sent, where to, and how fast.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct WarmArgs {
    /// A recording (`lapwing record`), or a file of requests: on each line {"method": "POST", "path": "/v2/models/m/infer",
    /// "headers": {…}, "body": …} with a text or a JSON value as body
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The address that clients of the running Lapwing connect to [default: `listen` of the configuration]
    #[arg(long, value_name = "URL")]
    to: Option<Upstream>,
    /// Send so many requests per second [default: one after the other]
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// Send nothing while others use more than this share of the upstream's slots, as /dispatch has it; where that is not known, one
    /// request at a time is sent, with pauses as long as the answers take
    #[arg(long, value_name = "SHARE")]
    max_utilisation: Option<Share>,
    /// How long a request may take
    #[arg(long, value_name = "PERIOD", default_value = "30s")]
    timeout: Period,
    /// The largest file that is read
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_size: Size,
    /// How many different requests are sent at most; of more, the most frequent ones
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_requests: u32,
    /// YAML file with settings: listen, tls.upstream [env: LAPWING_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print every figure as JSON instead of sentences
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum WarmFailure {
    #[error("faults in the settings")]
    Settings(Vec<Fault>),
    #[error("{0} {1}")]
    File(String, FileError),
    #[error(transparent)]
    Warm(#[from] WarmError),
    #[error("{0}")]
    Failed(String),
}

/// Runs the command. `env` are the variables of the environment. Returns the exit code.
pub(crate) fn run(args: &WarmArgs, env: Vec<(String, String)>) -> u8 {
    let report = match report_of(args, env) {
        Ok(report) => report,
        Err(WarmFailure::Settings(faults)) => {
            // standard error may be closed
            drop(check::write_faults(&faults, &mut io::stderr().lock()));
            return USAGE;
        }
        Err(failure) => {
            eprintln!("lapwing warm: {failure}");
            return match failure {
                WarmFailure::Settings(_) => USAGE,
                WarmFailure::File(..) => BROKEN_FILE,
                WarmFailure::Warm(WarmError::Off(_)) => NOT_WARM,
                WarmFailure::Warm(WarmError::Unavailable(_)) | WarmFailure::Failed(_) => UNAVAILABLE,
            };
        }
    };
    let text = if args.json { serde_json::to_string(&report).unwrap_or_default() + "\n" } else { report.to_string() };
    // a closed pipe is not an error
    drop(io::stdout().lock().write_all(text.as_bytes()));
    if report.is_complete() { 0 } else { NOT_WARM }
}

fn report_of(args: &WarmArgs, env: Vec<(String, String)>) -> Result<WarmReport, WarmFailure> {
    // a warm-up has no upstream; the setting is required
    let upstream = Flag { path: "upstream".into(), name: "--to".into(), text: "http://127.0.0.1:9".into() };
    let loaded = config::load(&Sources::new(args.config.clone(), env, vec![upstream])).map_err(WarmFailure::Settings)?;
    let clients = args.clients(&loaded.config)?;
    let named = |error: FileError| WarmFailure::File(args.file.display().to_string(), error);
    let file = File::open(&args.file).map_err(|error| named(error.into()))?;
    let limits = FileLimits { file: args.max_size.get(), ..FileLimits::default() };
    let limits = WarmLimits { file: limits, requests: args.max_requests as usize };
    let requests = read_warm_requests(BufReader::new(file), limits).map_err(named)?;
    let pace = WarmPace { rate: args.rate, max_utilisation: args.max_utilisation };
    let admin = args.admin.client();
    let asks = async |path: &'static str| admin.get(path, "application/json").await;
    block_on(async { Ok(warm(&requests, &clients, &asks, pace, |_| {}).await) }).map_err(WarmFailure::Failed)?.map_err(Into::into)
}

impl WarmArgs {
    /// What sends to the address of the running Lapwing.
    fn clients(&self, config: &Config) -> Result<WarmClients, WarmFailure> {
        let own = || config.listen.reached_at().map(|at| Upstream::Http { authority: at.to_string(), scheme: HttpScheme::Http });
        let to = self.to.clone().or_else(own);
        let to =
            to.ok_or_else(|| WarmFailure::Failed("the configuration has no port in `listen`: name it by --to".to_owned()))?;
        let identity = ClientIdentity::load("tls.upstream", &config.tls.upstream);
        let identity = identity.map_err(|fault| WarmFailure::Settings(vec![fault]))?;
        Ok(WarmClients::new(&Target::of(&to, &identity), self.timeout.get()))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.001..=1e6).contains(number));
    number.ok_or_else(|| "must be a number from 0.001 to 1000000".to_owned())
}
