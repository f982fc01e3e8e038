//! The command line. Settings stay text here: `config::load` reads them, so that a fault has the same message whether the
//! value comes from a file, a variable or a flag.

mod completions;
mod man;
mod schema;
mod settings;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, CommandFactory, Parser, Subcommand};

pub use self::completions::CompletionShell;
pub use self::man::ManArgs;
pub use self::schema::SchemaArgs;
use self::settings::Settings;
pub use super::cluster::ClusterSub;
use super::demo::DemoArgs;
use super::doctor;
pub use super::doctor::DoctorArgs;
use super::engine::EngineSub;
use super::replay::ReplayArgs;
use super::upstream_flags;
pub use super::upstream_flags::UpstreamFlags;
use super::warm::WarmArgs;
use crate::config::Sources;
use lapwing_console::diagnose::DiagnoseArgs;
use lapwing_console::fleet::{CompareArgs, MergeArgs};
use lapwing_console::record::RecordArgs;
use lapwing_console::shadow_report::ShadowSub;
use lapwing_console::stats::StatsArgs;
#[cfg(feature = "top")]
use lapwing_console::top::TopArgs;
use lapwing_ledger::Server;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const ABOUT: &str = "\
Lapwing is a proxy for a model server that shows where the time of each request goes.

Clients connect to Lapwing, and Lapwing passes their requests and the responses on unchanged. It measures the
time in the network itself. It learns the stages inside the server (queue, features, preprocessing, model,
postprocessing) from Server-Timing fields in the responses and from the OpenTelemetry spans that the server sends.";

const EXAMPLES: &str = "\
Examples:
  lapwing --upstream http://127.0.0.1:8000           profile the model server on port 8000; clients use port 8080
  lapwing stats                                      read the time of each stage (curl 127.0.0.1:9464/stats: as JSON)
  lapwing diagnose                                   read which stage is to blame, and what to do first
  lapwing serve --config lapwing.yaml                start with a configuration file
  lapwing check --config lapwing.yaml                list every fault of the file, or print the resulting configuration
  lapwing doctor --config lapwing.yaml               see whether all is well on this machine, and what to do where it is not
  lapwing demo                                       try it: a model server, clients and a live table in one process
  lapwing --upstream URL --shadow URL2               copy 5 % of the requests to URL2, and compare both (/shadow)
  lapwing upstream-flags vllm                        print how to make a vLLM server report its stages
  lapwing engine serve --model model.onnx            serve an ONNX model with the built-in engine
  lapwing engine bench model.onnx                    time a model, and compare with what this machine can do

Each setting can come from the file, from an environment variable or, if it is listed above, from a flag. Variables
override the file, and flags override both. `proxy.workers` is the variable LAPWING_PROXY__WORKERS, `listen` is
LAPWING_LISTEN.
docs/CONFIGURATION.md lists all settings.";

/// A parsed command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Proxy requests, configured by these sources.
    Serve(Sources),
    /// Print the faults of these sources, or the resulting configuration.
    Check(Sources),
    /// Look at everything that Lapwing needs here, and say what to do.
    Doctor(DoctorArgs, Sources),
    /// Run the demonstration.
    Demo(DemoArgs),
    /// Print how to make a model server report its stages.
    UpstreamFlags(UpstreamFlags),
    /// Print the figures of a running Lapwing.
    Stats(StatsArgs),
    /// Say what limits the routes of a running Lapwing.
    Diagnose(DiagnoseArgs),
    /// Show the figures of a running Lapwing live.
    #[cfg(feature = "top")]
    Top(TopArgs),
    /// Print what completes this command line in a shell.
    Completions(CompletionShell),
    /// Print the manual, or write it to a folder.
    Man(ManArgs),
    /// Print the schema of the configuration file, or tables of its settings.
    Schema(SchemaArgs),
    /// Ask a running Lapwing for its shadow report.
    Shadow(ShadowSub),
    /// Record requests of a running Lapwing.
    Record(RecordArgs),
    /// Add the logs of many pods up.
    Merge(MergeArgs),
    /// Hold two logs against each other.
    Compare(CompareArgs),
    /// Replay a recording. The variables are those of the environment.
    Replay(ReplayArgs, Vec<(String, String)>),
    /// Fill the cache of a running Lapwing. The variables are those of the environment.
    Warm(WarmArgs, Vec<(String, String)>),
    /// Put Lapwing into the pods of a cluster.
    Cluster(ClusterSub),
    /// Serve, inspect, time or quantize a model. The variables are those of the environment.
    Engine(EngineSub, Vec<(String, String)>),
}

/// Reads the command line `args` (the first is the program's name), with the process's environment `env`, of which the
/// `LAPWING_` variables are kept, and those that name OpenTelemetry's sampler.
///
/// # Errors
///
/// If the arguments are not a valid command. Also for `--help` and `--version`, whose text belongs on standard output, with exit
/// code 0.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, clap::Error> {
    let cli = Cli::try_parse_from(args)?;
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let env = env.into_iter().map(|(name, value)| (text(name), text(value)));
    let env: Vec<_> = env.filter(|(name, _)| name.starts_with("LAPWING_") || name.starts_with("OTEL_")).collect();
    Ok(match cli.command {
        None => Command::Serve(cli.serve.sources(env)),
        Some(Sub::Serve(flags)) => Command::Serve(flags.sources(env)),
        Some(Sub::Check(flags)) => Command::Check(flags.sources(env)),
        Some(Sub::Doctor { args, settings }) => Command::Doctor(args, settings.sources(env)),
        Some(Sub::Demo(args)) => Command::Demo(args),
        Some(Sub::UpstreamFlags(UpstreamFlagsFlags { server, otlp_grpc, otlp_http })) => {
            Command::UpstreamFlags(UpstreamFlags { server, otlp_grpc, otlp_http })
        }
        Some(Sub::Stats(args)) => Command::Stats(args),
        Some(Sub::Diagnose(args)) => Command::Diagnose(args),
        #[cfg(feature = "top")]
        Some(Sub::Top(args)) => Command::Top(args),
        Some(Sub::Completions { shell }) => Command::Completions(shell),
        Some(Sub::Man(args)) => Command::Man(args),
        Some(Sub::Schema(args)) => Command::Schema(args),
        Some(Sub::Shadow { command }) => Command::Shadow(command),
        Some(Sub::Record(args)) => Command::Record(args),
        Some(Sub::Merge(args)) => Command::Merge(args),
        Some(Sub::Compare(args)) => Command::Compare(args),
        Some(Sub::Replay(args)) => Command::Replay(*args, env),
        Some(Sub::Warm(args)) => Command::Warm(*args, env),
        Some(Sub::Cluster(command)) => Command::Cluster(command),
        Some(Sub::Engine { command }) => Command::Engine(command, env),
    })
}

/// Prints what completes this command line in a shell. Returns the exit code.
pub(crate) fn print_completions(shell: CompletionShell) -> i32 {
    // a closed pipe is not an error
    drop(io::stdout().lock().write_all(&shell.script(Cli::command())));
    0
}

/// Prints the schema of the configuration file, or tables of its settings. Returns the exit code.
pub(crate) fn print_schema(args: &SchemaArgs) -> i32 {
    schema::print(args, &setting_flags())
}

/// The settings that have a flag, by path.
pub(crate) fn setting_flags() -> BTreeSet<String> {
    let names = Settings::augment_args(clap::Command::new(""))
        .get_arguments()
        .filter_map(|arg| arg.get_long().map(str::to_owned))
        .collect::<Vec<_>>();
    let args = names.iter().map(|name| OsString::from(format!("--{name}=x"))).collect::<Vec<_>>();
    let parsed = Cli::try_parse_from([OsString::from("lapwing")].into_iter().chain(args));
    let flags = parsed.map(|cli| cli.serve.sources(Vec::new()).flags).unwrap_or_default();
    // a target has a name
    flags.into_iter().map(|flag| flag.path.strip_suffix(".shadow").map_or(flag.path.clone(), str::to_owned)).collect()
}

/// Prints or writes the manual. Returns the exit code.
pub(crate) fn print_man(args: &ManArgs) -> i32 {
    man::print(args, Cli::command())
}

#[derive(Parser)]
#[command(name = "lapwing", version, about = ABOUT, styles = STYLES, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Sub>,
    #[command(flatten)]
    serve: Settings,
}

#[derive(Subcommand)]
enum Sub {
    /// Proxy and profile a model server; `lapwing` without a command does the same
    #[command(after_help = EXAMPLES)]
    Serve(Box<Settings>),
    /// List every fault of the configuration, or print the configuration with the origin of each value
    #[command(
        after_help = "Reads the same file, variables and flags as `serve`, but opens no port. Secrets are printed as ***.\n\
        Exit code: 0 if there is no fault, 64 if there are faults.\n\n\
        Examples:\n  lapwing check --config lapwing.yaml\n  lapwing check --upstream http://127.0.0.1:8000 --otlp-grpc off"
    )]
    Check(Box<Settings>),
    /// Look at all that Lapwing needs on this machine (ports, upstream, reports, collector, limits), and say what to do
    #[command(after_help = doctor::NOTES)]
    Doctor {
        #[command(flatten)]
        args: DoctorArgs,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Run a small model server, Lapwing in front of it and a load, and show where the time goes
    #[command(after_help = "Ends with a summary, after --seconds or on Ctrl-C.")]
    Demo(DemoArgs),
    /// Print the figures of a running Lapwing: where the time goes, per route and model
    #[command(after_help = "The series that took the most time comes first. docs/STATS.md explains every figure.\n\
        Exit code: 0; 69 if no Lapwing answers.\n\n\
        Examples:\n  lapwing stats\n  lapwing stats --window all --model tickets\n  \
        lapwing stats --json | jq '.series[] | [.route, .total.p99_ns]'\n  \
        lapwing stats --admin 10.0.0.5:9464 --token-file token")]
    Stats(StatsArgs),
    /// Say how the requests of each route end, which stage is to blame for its latency, how sure that is, and what to do first
    #[command(
        after_help = "What is missing comes first, then routes that fail, then the one that lost most time. docs/DIAGNOSIS.md has every rule.\n\n\
        Exit code:\n  0   every route that can be judged keeps its budget, and they have at least 95 % of the requests\n  \
        1   a route is over its budget, or without one its tail is unlike its body, and there is a verdict why\n  \
        2   not enough evidence: no request, or more than 5 % of them on routes without a verdict\n  \
        3   requests fail: the upstream fails, refuses, is unreachable or too slow, Lapwing sheds, or clients leave\n  \
        64  wrong usage\n  69  no Lapwing answers, or it does not diagnose\n\n\
        Budgets are those of the setting metrics.budgets; a route without one is healthy while its tail is like its body.\n\n\
        Examples:\n  lapwing diagnose\n  lapwing diagnose --wait 1m || echo 'do not deploy'\n  \
        lapwing diagnose --model ranker --window 1m\n  \
        lapwing diagnose --json | jq '.routes[0].verdicts[0].evidence'\n  \
        lapwing diagnose --admin 10.0.0.5:9464 --token-file token"
    )]
    Diagnose(DiagnoseArgs),
    /// Watch a running Lapwing in the terminal: routes and models, their stages, and their slowest requests
    #[cfg(feature = "top")]
    #[command(after_help = "Without a terminal, prints a line for each series every five seconds. `?` lists the keys.\n\n\
        Examples:\n  lapwing top\n  lapwing top --admin 10.0.0.5:9464 --token-file token\n  lapwing top --window 1m | tee figures.log")]
    Top(TopArgs),
    /// Print how to make a model server report its stages, what it then reports, and what it does not
    #[command(after_help = "Without SERVER: lists the known servers and what each reports.\n\n\
        Examples:\n  lapwing upstream-flags triton\n  lapwing upstream-flags vllm --otlp-grpc 10.0.0.5:4317")]
    UpstreamFlags(UpstreamFlagsFlags),
    /// Ask a running Lapwing what its shadow targets are like
    #[command(after_help = "`lapwing shadow report --help` has examples.")]
    Shadow {
        #[command(subcommand)]
        command: ShadowSub,
    },
    /// Record sampled requests of a running Lapwing, to be replayed
    #[command(after_help = "The file has what users sent: bodies of recognised calls, and headers that copies have too \
        (`shadow.headers`).\nMembers with the name of a secret and values at the paths of `shadow.compare.redact` are hidden. The running Lapwing answers only \
        processes of its own machine, and those with its admin token.\nExit code: 0; 69 if there is no recording, or it broke off.\n\n\
        Examples:\n  lapwing record --sample 1% --for 10m --out traffic.lwr\n  \
        lapwing record --sample 100% --max-requests 1000 --out traffic.lwr\n  \
        lapwing record --admin 10.0.0.5:9464 --token-file token --out traffic.lwr")]
    Record(RecordArgs),
    /// Send a recording to one or more servers or models, compare them, and check gates
    #[command(
        after_help = "Requests are sent when they are due, whether or not earlier ones were answered, and latencies are counted \
        from the due time\n(not with --closed). Errors and late answers therefore count as what a client would have seen.\n\
        Exit code: 0; 1 if a gate does not hold (each one is named); 64 wrong usage; 65 a broken file; 69 it could not run.\n\n\
        Examples:\n  lapwing replay traffic.lwr --to http://127.0.0.1:9000\n  \
        lapwing replay traffic.lwr --to fp32=http://127.0.0.1:8000 --to int8=http://127.0.0.1:9000 --rate 500 \\\n    \
        --gate 'p99_ratio<=1.05' --gate 'mismatch<=0.1%'\n  \
        lapwing replay traffic.lwr --to engine:model.onnx --closed 8 --json\n  \
        lapwing replay traffic.lwr --to http://127.0.0.1:9000 --pairs pairs.lwp && lapwing replay pairs.lwp"
    )]
    Replay(Box<ReplayArgs>),
    /// Fill the cache of a running Lapwing with the answers to the requests of a file, before or beside its traffic
    #[command(
        after_help = "Each different request is sent once, the most frequent first. Where the running Lapwing has not been shown yet that the \
        same question has the\nsame answer, the first requests of each route are sent twice, until it keeps answers (`cache.proof`).\n\
        A recording has no credentials, and an answer is given to those who send the same: with `cache.scope: authorization` only \
        clients without any profit\nfrom it. A file of requests may have credentials in `headers`. Host, Accept… and Content-Type are part of \
        the question too: give them as clients do.\n\
        Exit code: 0; 1 if a request failed, or nothing is kept there; 64 wrong usage; 65 a broken file; 69 no Lapwing answers.\n\n\
        Examples:\n  lapwing record --sample 100% --for 10m --out traffic.lwr && lapwing warm traffic.lwr\n  \
        lapwing warm users.jsonl --rate 50 --max-utilisation 50%\n  \
        lapwing warm traffic.lwr --to http://10.0.0.5:8080 --admin 10.0.0.5:9464 --token-file token --json"
    )]
    Warm(Box<WarmArgs>),
    /// Add up the histograms of several Lapwings, without loss, and print them
    #[command(
        after_help = "Each file is the answer of /hdr. Histograms of equal route, model, upstream and measure are added.\n\
        Exit code: 0; 65 a file that cannot be read.\n\n\
        Examples:\n  for pod in a b c; do curl -so $pod.hlog $pod:9464/hdr; done; lapwing merge *.hlog\n  \
        lapwing merge *.hlog --out all.hlog"
    )]
    Merge(MergeArgs),
    /// Say what changed between the histograms of two times, stage by stage
    #[command(
        after_help = "A percentile is slower or faster where the 99.9 % intervals of both sides do not touch, and the same where \
        they lie within 2 %.\nThe intervals take requests for independent of each other: a short disturbance can look like a change.\n\
        Exit code: 0; 65 a file that cannot be read.\n\n\
        Examples:\n  lapwing compare monday.hlog tuesday.hlog\n  lapwing compare fp32.hlog int8.hlog"
    )]
    Compare(CompareArgs),
    /// Print the completions of this command line for a shell
    #[command(after_help = "Examples:\n  lapwing completions bash > /usr/share/bash-completion/completions/lapwing\n  \
        lapwing completions zsh > \"${fpath[1]}/_lapwing\"\n  lapwing completions fish > ~/.config/fish/completions/lapwing.fish")]
    Completions {
        /// The shell
        shell: CompletionShell,
    },
    /// Print the manual page, or write one of each command to a folder
    #[command(after_help = "Examples:\n  lapwing man | man -l -\n  lapwing man --out /usr/share/man/man1")]
    Man(ManArgs),
    /// Print the JSON Schema of the configuration file, for editors and checks before a deployment
    #[command(after_help = "An editor with the YAML language server checks and completes a file that begins with\n\
        # yaml-language-server: $schema=lapwing.schema.json\n`lapwing check` sees more: settings that contradict one another, files \
        that are not there.\nExit code: 0; 66 if PAGE cannot be read, or has no place for a table.\n\n\
        Examples:\n  lapwing schema > lapwing.schema.json\n  lapwing schema --markdown\n  lapwing schema --markdown docs/CONFIGURATION.md")]
    Schema(SchemaArgs),
    #[command(flatten)]
    Cluster(ClusterSub),
    /// Serve ONNX models on the built-in engine; inspect, time or quantize one
    #[command(after_help = "`lapwing engine COMMAND --help` has examples.")]
    Engine {
        #[command(subcommand)]
        command: EngineSub,
    },
}

#[derive(Args)]
struct UpstreamFlagsFlags {
    /// The model server: triton, vllm, sglang, tei, tgi, llama.cpp, ollama …
    #[arg(value_name = "SERVER", value_parser = upstream_flags::server)]
    server: Option<Server>,
    /// Address under which the server reaches Lapwing's OTLP receiver over gRPC
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4317", value_parser = upstream_flags::address)]
    otlp_grpc: String,
    /// Address under which the server reaches Lapwing's OTLP receiver over HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4318", value_parser = upstream_flags::address)]
    otlp_http: String,
}

#[cfg(test)]
mod tests;
