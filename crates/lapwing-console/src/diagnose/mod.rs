//! `lapwing diagnose`: prints what a running Lapwing's `/diagnosis` says, and ends with an exit code for scripts.

mod words;

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use clap::builder::PossibleValuesParser;

pub use self::words::words;
use super::admin_client::{AdminArgs, UNAVAILABLE, block_on};
use super::stats::NameFilter;
use lapwing_diagnosis::{Diagnosis, DiagnosisWindow, Status};
use lapwing_settings::Period;

/// The exit code while every route that is judged keeps its budget.
const HEALTHY: u8 = 0;
/// The exit code if a route's latency is the trouble, with a verdict: it is over its budget, or without one its tail is unlike its body.
const OVER_BUDGET: u8 = 1;
/// The exit code if there is not enough evidence.
const NOT_ENOUGH_EVIDENCE: u8 = 2;
/// The exit code if requests of a route fail, whatever their latency.
const FAILING: u8 = 3;
/// The share of requests that may be of routes without a verdict while the others count as healthy. Probes and rare routes seldom have one.
const MOST_UNJUDGED: f64 = 0.05;
/// How often it is asked while it waits.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Which diagnosis to print, and where it is asked for.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DiagnoseArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The window of the diagnosis [default: the running Lapwing's setting diagnosis.window, which is 5m unless it is changed]
    #[arg(long, value_name = "WINDOW")]
    #[arg(value_parser = PossibleValuesParser::new(DiagnosisWindow::ALL.map(DiagnosisWindow::name)))]
    window: Option<String>,
    #[command(flatten)]
    names: NameFilter,
    /// Wait until there is enough evidence, at most for so long, as 90s or 5m [default: do not wait]
    #[arg(long, value_name = "PERIOD", value_parser = period)]
    wait: Option<Period>,
    /// Print the answer of /diagnosis as it is, with every figure
    #[arg(long)]
    json: bool,
}

fn period(text: &str) -> Result<Period, String> {
    text.parse().map_err(|invalid: lapwing_settings::Invalid| invalid.reason)
}

/// An answer of `/diagnosis`, as it came and as it was read.
struct Answer {
    bytes: Bytes,
    diagnosis: Diagnosis,
}

/// Runs the command. Returns the exit code.
pub fn run(args: &DiagnoseArgs) -> u8 {
    match block_on(asked(args)) {
        Ok(Answer { bytes, diagnosis }) => {
            let text = if args.json { [&bytes[..], b"\n"].concat() } else { words(&diagnosis).into_bytes() };
            // a closed pipe is not an error, and the exit code stays
            drop(io::stdout().lock().write_all(&text));
            exit_code(&diagnosis)
        }
        Err(reason) => {
            eprintln!("lapwing diagnose: {reason}");
            UNAVAILABLE
        }
    }
}

/// The diagnosis, once there is enough evidence or the time to wait for it is over.
async fn asked(args: &DiagnoseArgs) -> Result<Answer, String> {
    let client = args.admin.client();
    let window = args.window.as_deref().map(|window| ("window", window));
    let path = args.names.query("/diagnosis", window.as_slice());
    let ask = async || {
        let bytes = client.get(&path, "application/json").await?;
        let diagnosis = read(&bytes).map_err(|reason| format!("{}: {reason}", args.admin.address()))?;
        Ok::<_, String>(Answer { bytes, diagnosis })
    };
    let over = tokio::time::sleep(args.wait.map(Period::get).unwrap_or_default());
    tokio::pin!(over);
    let mut answer = ask().await?;
    while exit_code(&answer.diagnosis) == NOT_ENOUGH_EVIDENCE {
        tokio::select! {
            biased;
            () = &mut over => break,
            () = tokio::time::sleep(POLL_INTERVAL) => answer = ask().await?,
        }
    }
    Ok(answer)
}

fn read(answer: &[u8]) -> Result<Diagnosis, String> {
    serde_json::from_slice(answer).map_err(|error| format!("the answer is not that of /diagnosis: {error}"))
}

/// The exit code for scripts: whether a route fails its requests, else whether one is over its budget, and if none is, whether enough requests
/// are of routes with a verdict.
fn exit_code(diagnosis: &Diagnosis) -> u8 {
    let of = |status| diagnosis.routes.iter().filter(move |route| route.status == status);
    if of(Status::Failing).next().is_some() {
        return FAILING;
    }
    if of(Status::OverBudget).chain(of(Status::SlowTail)).next().is_some() {
        return OVER_BUDGET;
    }
    let requests = |status| of(status).fold(0_u64, |sum, route| sum.saturating_add(route.requests));
    let (judged, unjudged) = (requests(Status::Healthy), requests(Status::NotEnoughEvidence));
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let share = unjudged as f64 / judged.saturating_add(unjudged).max(1) as f64;
    if judged > 0 && share <= MOST_UNJUDGED { HEALTHY } else { NOT_ENOUGH_EVIDENCE }
}

#[cfg(test)]
mod tests;
