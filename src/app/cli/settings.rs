//! The settings that have a flag.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Flag, Sources};

#[derive(Args)]
pub(crate) struct Settings {
    /// YAML file with any setting [env: LAPWING_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The model server: http://HOST:PORT, h2c://HOST:PORT or unix:/PATH [required: here, in the file or in the environment]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,

    /// Address that clients connect to [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", help_heading = "Addresses")]
    listen: Option<String>,
    /// Address of /stats, /exchanges and /metrics [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDRESS", help_heading = "Addresses")]
    admin: Option<String>,

    /// Address that receives OpenTelemetry spans over gRPC, or off [default: 127.0.0.1:4317]
    #[arg(long, value_name = "ADDRESS", help_heading = "Spans")]
    otlp_grpc: Option<String>,
    /// Address that receives OpenTelemetry spans over HTTP, or off [default: 127.0.0.1:4318]
    #[arg(long, value_name = "ADDRESS", help_heading = "Spans")]
    otlp_http: Option<String>,
    /// Forward all received telemetry to this collector: http://HOST:4318, grpc://HOST:4317 or off [default: off]
    #[arg(long, value_name = "URL", help_heading = "Spans")]
    otlp_forward: Option<String>,
    /// auto: keep the client's sampling decision, sample if there is none; force: always sample; off: no tracing [default: auto]
    #[arg(long, value_name = "HOW", help_heading = "Spans")]
    trace_sampling: Option<String>,

    /// Copy sampled requests to another server, or to a model that the engine runs: URL or engine:FILE, after a name and = if
    /// there are several [default: none]
    #[arg(long = "shadow", value_name = "[NAME=]TARGET", help_heading = "Shadow")]
    shadow_targets: Vec<String>,
    /// The share of requests that are copied [default: 5%]
    #[arg(long, value_name = "SHARE", help_heading = "Shadow")]
    shadow_sample: Option<String>,

    /// Add a Server-Timing field with the stages to responses [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(help_heading = "Behaviour")]
    respond_server_timing: Option<String>,
    /// Threads that proxy requests; 0: one, or one for each processor that was set aside for the container, up to four [default: 0]
    #[arg(long, value_name = "N", help_heading = "Behaviour")]
    workers: Option<String>,
    /// How long requests in flight may take to end after SIGTERM [default: 30s]
    #[arg(long, value_name = "PERIOD", help_heading = "Behaviour")]
    drain_timeout: Option<String>,
    /// Log level: error, warn, info, debug or trace; per module as in info,lapwing_proxy=debug [default: info]
    #[arg(long, value_name = "FILTER", help_heading = "Behaviour")]
    log: Option<String>,
    /// Format of log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Behaviour")]
    log_format: Option<String>,
}

impl Settings {
    /// What the flags, the file and the variables `env` set.
    pub(crate) fn sources(self, env: Vec<(String, String)>) -> Sources {
        let given = [
            ("upstream", self.upstream),
            ("listen", self.listen),
            ("admin", self.admin),
            ("otlp_grpc", self.otlp_grpc),
            ("otlp_http", self.otlp_http),
            ("otlp_forward", self.otlp_forward),
            ("trace_sampling", self.trace_sampling),
            ("respond_server_timing", self.respond_server_timing),
            ("drain_timeout", self.drain_timeout),
            ("log", self.log),
            ("log_format", self.log_format),
        ];
        let flag = |(path, text): (&str, Option<String>)| {
            text.map(|text| Flag { path: path.to_owned(), name: format!("--{}", path.replace('_', "-")), text })
        };
        let sample = self.shadow_sample.map(|text| Flag { path: "shadow.sample".into(), name: "--shadow-sample".into(), text });
        let workers = self.workers.map(|text| Flag { path: "proxy.workers".into(), name: "--workers".into(), text });
        let shadows = self.shadow_targets.into_iter().map(shadow_target);
        Sources::new(self.config, env, given.into_iter().filter_map(flag).chain(sample).chain(workers).chain(shadows).collect())
    }
}

/// The setting of `--shadow`: the target's name, or `shadow`, and its address.
fn shadow_target(text: String) -> Flag {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let (name, address) = match text.split_once('=') {
        Some((name, address)) if is_name(name) => (name.to_owned(), address.to_owned()),
        _ => ("shadow".to_owned(), text),
    };
    Flag { path: format!("shadow.targets.{name}"), name: "--shadow".to_owned(), text: address }
}
