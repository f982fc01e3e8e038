//! `lapwing doctor`: looks at everything that Lapwing needs on this machine, a line each, with what to do where it is not well.
//!
//! It reads the configuration as `lapwing check` does, asks a running Lapwing, the upstreams and the collectors, and reads `/proc` and
//! `/sys`. It changes nothing: it binds a port only to see whether it is free, and sends a collector an export without content.

mod addresses;
mod certificates;
mod cgroup;
mod check;
mod collectors;
mod configuration;
mod downstreams;
#[cfg(feature = "engine")]
mod engine;
mod limits;
mod process;
mod reports;
mod running;
mod system;
mod upstreams;

use std::io::{self, Write};
use std::path::Path;

use clap::Args;

use self::check::DoctorReport;
use self::process::Processes;
use self::running::AdminAnswer;
use crate::config::Sources;
use lapwing_console::admin_client::AdminTlsArgs;

/// The exit code where something is wrong.
const WRONG: i32 = 1;

/// Shown below the flags.
pub(crate) const NOTES: &str = "\
Reads the same file, variables and flags as `serve`; give it those of the Lapwing that you ask about. A line for each thing:

  ok      it is well
  note    Lapwing works, and something is missing, unknown or about to go wrong
  wrong   requests fail, figures are lost, or Lapwing does not start

After → stands what to do. As the user that runs Lapwing, or as root, it sees more: who holds a port, and the limits of the process
that runs. It sends upstreams GET requests to paths of health, metadata and metrics, and collectors an export without content.
Exit code: 0 if nothing is wrong; 1 if something is; 64 wrong usage.

Examples:
  lapwing doctor --upstream http://127.0.0.1:8000                  before the first start
  lapwing doctor --config /etc/lapwing/lapwing.yaml                what the service uses
  lapwing doctor --config lapwing.yaml | grep -v ^ok               only what is to do
  lapwing doctor --json | jq -r '.checks[] | select(.verdict == \"wrong\") | .advice'
  kubectl exec ranker-0 -c lapwing -- lapwing doctor --upstream http://127.0.0.1:8000 --listen [::]:9463 --admin [::]:9464
                                                                   in a pod: with the arguments of its container";

/// What `lapwing doctor` is asked for, besides the settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorArgs {
    /// Print JSON: `verdict`, and `checks` with `name`, `verdict`, `found` and `advice`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin_tls: AdminTlsArgs,
}

/// Looks at everything and prints what it found; the exit code.
pub(crate) fn run(args: &DoctorArgs, sources: &Sources) -> i32 {
    let report = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(examine(args, sources)),
        Err(error) => {
            eprintln!("lapwing doctor: cannot begin: {error}");
            return WRONG;
        }
    };
    let text = if args.json { report.json() } else { report.text() };
    // a closed pipe is not an error, and the exit code stays
    drop(io::stdout().lock().write_all(text.as_bytes()));
    if report.is_wrong() { WRONG } else { 0 }
}

/// Each part looks at one thing, in the order in which a fault of one explains those of the next.
async fn examine(args: &DoctorArgs, sources: &Sources) -> DoctorReport {
    let mut report = DoctorReport::default();
    let loaded = configuration::check(sources, &mut report);
    let processes = Processes::of(Path::new("/proc"));
    let mut pid = None;
    if let Some(loaded) = &loaded {
        let config = &loaded.config;
        let running = AdminAnswer::ask(config, &args.admin_tls).await;
        pid = running::check(&running, loaded, &processes, &mut report);
        addresses::check(config, &running, &processes, &mut report);
        let stats = running.found().map(|found| &found.stats);
        upstreams::check(config, stats, &mut report).await;
        downstreams::check(config, &mut report).await;
        if let Some(found) = running.found() {
            reports::check(found, &mut report);
        }
        collectors::check(config, &mut report).await;
        certificates::check(config, &mut report);
    }
    let config = loaded.map(|loaded| loaded.config).unwrap_or_default();
    limits::check(&config, &processes, pid, &mut report);
    #[cfg(feature = "engine")]
    engine::check(&config.engine, &mut report);
    system::check(&config, &mut report);
    report
}
