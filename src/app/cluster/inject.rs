//! `lapwing inject`: manifests in, manifests with the sidecar out.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lapwing_inject::{InjectOptions, InjectReport, InjectVerdict, Injection, KubernetesVersion, MemoryAmount, ResourceName, Way};
use similar::TextDiff;

/// Exit codes (sysexits.h): `EX_DATAERR`, `EX_NOINPUT`.
const BROKEN: i32 = 65;
const NO_INPUT: i32 = 66;

/// What `lapwing inject` is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct InjectArgs {
    /// The manifest, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take Lapwing out again, of all that it is in
    #[arg(long, conflicts_with_all = ["workloads", "container", "port", "way", "reporting", "gpu", "memory", "share_processes", "config_map"])]
    remove: bool,
    /// Print what would change, line by line, instead of the manifest
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    sidecar: SidecarArgs,
    /// The objects to inject into: KIND/NAME or NAME [default: those with a model server that is known, or the only one]
    #[arg(long = "workload", value_name = "NAME", help_heading = "Server")]
    workloads: Vec<String>,
    /// The server's container, if the manifest does not show which it is
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    container: Option<String>,
    /// The server's port, if the manifest does not show it
    #[arg(long, value_name = "PORT", help_heading = "Server", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

/// What the sidecar is like, and how traffic comes to it.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct SidecarArgs {
    /// The image with Lapwing [default: lapwing:VERSION]
    #[arg(long, value_name = "IMAGE", help_heading = "Sidecar")]
    image: Option<String>,
    /// A further argument of Lapwing, as in --arg=--trace-sampling=off
    #[arg(long = "arg", value_name = "ARGUMENT", allow_hyphen_values = true, help_heading = "Sidecar")]
    args: Vec<String>,
    /// The ConfigMap with Lapwing's configuration, in the key lapwing.yaml
    #[arg(long, value_name = "NAME", help_heading = "Sidecar")]
    config_map: Option<ResourceName>,
    /// Start the server so that it reports its stages, as `lapwing upstream-flags` says
    #[arg(long, help_heading = "Server")]
    reporting: bool,
    /// Limit of memory; a model of the embedded engine needs more than the default
    #[arg(long, value_name = "QUANTITY", help_heading = "Sidecar")]
    memory: Option<MemoryAmount>,
    /// Let the sidecar see the node's GPUs, for a model of the embedded engine; it asks the scheduler for none, and shares the server's
    #[arg(long, help_heading = "Sidecar")]
    gpu: bool,
    /// Let the pod's containers see one another's processes (shareProcessNamespace), so that `lapwing doctor` in the sidecar sees the server's
    #[arg(long, help_heading = "Sidecar")]
    share_processes: bool,
    /// The cluster's version: sidecars are init containers that go on (1.29), or beside the server
    #[arg(long, value_name = "VERSION", default_value = "1.29", help_heading = "Sidecar")]
    kubernetes: KubernetesVersion,
    /// How traffic comes to the sidecar: named, redirect or service [default: named if the Services in the input lead there by
    /// name, else redirect]
    #[arg(long, value_name = "WAY", help_heading = "Traffic")]
    way: Option<Way>,
    /// Port on which Lapwing listens; the next that is free in the pod
    #[arg(long, value_name = "PORT", default_value = "9463", help_heading = "Traffic")]
    listen_port: u16,
    /// Port of /stats, /metrics, /livez; the next that is free in the pod
    #[arg(long, value_name = "PORT", default_value = "9464", help_heading = "Traffic")]
    admin_port: u16,
}

impl SidecarArgs {
    pub(crate) fn options(&self) -> InjectOptions {
        let default = InjectOptions::default();
        InjectOptions {
            image: self.image.clone().unwrap_or(default.image),
            way: self.way,
            kubernetes: self.kubernetes,
            listen: self.listen_port,
            admin: self.admin_port,
            args: self.args.clone(),
            config_map: self.config_map.clone(),
            reporting: self.reporting,
            memory: self.memory.clone().unwrap_or(default.memory),
            gpu: self.gpu,
            share_processes: self.share_processes,
            ..InjectOptions::default()
        }
    }
}

/// Injects, or takes out; the exit code.
pub(crate) fn run(args: &InjectArgs) -> i32 {
    let (out, said, code) = match read(&args.file) {
        Ok(text) => answer(args, &text),
        Err(error) => (String::new(), format!("lapwing: {} cannot be read: {error}\n", args.file.display()), NO_INPUT),
    };
    // a closed pipe is not an error
    drop(io::stderr().lock().write_all(said.as_bytes()));
    drop(io::stdout().lock().write_all(out.as_bytes()));
    code
}

fn read(file: &Path) -> io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

/// What goes to standard output, to standard error, and the exit code.
fn answer(args: &InjectArgs, text: &str) -> (String, String, i32) {
    let made = if args.remove { lapwing_inject::remove(text) } else { lapwing_inject::inject(text, &options(args)) };
    let Injection { text: made, reports } = match made {
        Ok(made) => made,
        Err(error) => return (String::new(), format!("lapwing: {}: {error}\n", args.file.display()), BROKEN),
    };
    let mut said = reports.iter().map(line).collect::<String>();
    if let Some(fault) = fault(args, &reports) {
        let _ = writeln!(said, "lapwing: {fault}");
        return (String::new(), said, BROKEN);
    }
    if args.remove && reports.is_empty() {
        said.push_str("lapwing: it has no injected Lapwing\n");
    }
    if !args.diff {
        return (made, said, 0);
    }
    let name = args.file.display().to_string();
    let diff = TextDiff::from_lines(text, &made).unified_diff().header(&name, &name).to_string();
    let code = i32::from(!diff.is_empty());
    (diff, said, code)
}

/// Why nothing is printed.
fn fault(args: &InjectArgs, reports: &[InjectReport]) -> Option<String> {
    let any = |verdicts: &[InjectVerdict]| reports.iter().any(|report| verdicts.contains(&report.verdict));
    if args.remove {
        return None;
    }
    if let Some(missing) = args.workloads.iter().find(|name| !reports.iter().any(|report| is_of(report, name))) {
        return Some(format!("no object of the input is {missing}"));
    }
    let reason = if reports.is_empty() {
        "the input has no object with a pod in it"
    } else if any(&[InjectVerdict::Refused]) {
        "nothing is printed, since not all can be injected; choose by --workload"
    } else if any(&[InjectVerdict::Injected, InjectVerdict::Unchanged]) {
        return None;
    } else {
        "nothing is printed, since nothing was injected"
    };
    Some(reason.to_owned())
}

fn is_of(report: &InjectReport, name: &str) -> bool {
    report.title.eq_ignore_ascii_case(name) || report.title.split('/').nth(1) == Some(name)
}

fn line(report: &InjectReport) -> String {
    let verdict = match report.verdict {
        InjectVerdict::Injected => "injected",
        InjectVerdict::Unchanged => "unchanged, Lapwing is in it as it would be now",
        InjectVerdict::Removed => "Lapwing is taken out",
        InjectVerdict::Left => "left as it is",
        InjectVerdict::Refused => "cannot be injected",
    };
    let lines: String = report.lines.iter().map(|line| format!("  {line}\n")).collect();
    format!("{}: {verdict}\n{lines}", report.title)
}

fn options(args: &InjectArgs) -> InjectOptions {
    InjectOptions {
        port: args.port,
        container: args.container.clone(),
        workloads: args.workloads.clone(),
        ..args.sidecar.options()
    }
}
