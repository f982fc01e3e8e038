//! The arguments of `lapwing replay`.

use std::path::PathBuf;

use clap::Args;

use super::schedule::Pace;
use lapwing_settings::{Bind, Period, ShadowTarget, Size};
use lapwing_shadow::gates::Gate;

/// The longest name of a target, in bytes.
const MAX_NAME: usize = 64;

/// What is replayed, where to, how fast, and what must hold.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ReplayArgs {
    /// A recording (`lapwing record`); or the pairs of an earlier replay (--pairs), whose report is made again
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Where requests go, as often as there are targets: http://HOST:PORT, h2c://HOST:PORT, unix:/PATH or engine:model.onnx, each
    /// with or without a name before it. One target is compared with what was recorded; of several, the first with the others
    #[arg(long = "to", value_name = "[NAME=]TARGET", value_parser = target)]
    pub(crate) targets: Vec<ReplayTarget>,
    /// Send at the recorded times, so many times as fast [default: 1]
    #[arg(long, value_name = "FACTOR", group = "pace", value_parser = factor)]
    pub(crate) speed: Option<f64>,
    /// Send so many requests per second, evenly
    #[arg(long, value_name = "N", group = "pace", value_parser = factor)]
    pub(crate) rate: Option<f64>,
    /// Send with so many clients, each of which waits for its answers
    #[arg(long, value_name = "N", group = "pace", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) closed: Option<u32>,
    /// What must hold, or the exit code is 1: p50_ratio, p90_ratio, p99_ratio, paired_p50 (each of total, or of what stands before
    /// it, as in forward.p99_ratio and from_due.p99_ratio), mismatch, excused, unjudged, failed or lateness_p99; <=, <, >= or >; and a bound.
    /// A gate also fails if more than 5% could not be judged; unjudged<=BOUND allows another share
    #[arg(long = "gate", value_name = "GATE")]
    pub(crate) gates: Vec<Gate>,
    /// How long a target may take to answer
    #[arg(long, value_name = "PERIOD", default_value = "30s")]
    pub(crate) timeout: Period,
    /// Requests that each target has in flight at most; further ones wait, which counts as their latency
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_in_flight: u32,
    /// The largest recording that is read
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) max_size: Size,
    /// Write every pair to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) pairs: Option<PathBuf>,
    /// Address that receives the targets' OpenTelemetry spans over gRPC while they are replayed to; their exporters must send there
    /// [default: none, and stages come from the answers alone]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) otlp_grpc: Option<Bind>,
    /// The same over HTTP
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) otlp_http: Option<Bind>,
    /// YAML file with settings: shadow.compare, protocol, attribution, engine [env: LAPWING_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print every figure as JSON instead of sentences
    #[arg(long)]
    pub(crate) json: bool,
}

/// A target of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayTarget {
    /// `None`: it is named by its place.
    pub(crate) name: Option<String>,
    pub(crate) address: ShadowTarget,
}

impl ReplayArgs {
    /// How fast requests are sent.
    pub(crate) fn pace(&self) -> Pace {
        match (self.rate, self.closed) {
            (Some(rate), _) => Pace::Rate(rate),
            (_, Some(clients)) => Pace::Closed(clients as usize),
            _ => Pace::Speed(self.speed.unwrap_or(1.0)),
        }
    }

    /// The targets with their names.
    ///
    /// # Errors
    ///
    /// If there is none, too many, or two have the same name.
    pub(crate) fn named(&self) -> Result<Vec<(String, ShadowTarget)>, String> {
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
