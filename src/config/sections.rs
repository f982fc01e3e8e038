//! The sections, each from the crate that it configures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::serving;
use lapwing_settings::{
    AdminToken, AdminTokenFor, Bind, Checks, Collector, File, Form, Period, Secret, Section, Switch, TraceContexts, TraceSampler,
    Upstream,
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// All settings. [`load`](super::load) returns a checked configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The model server. Loading requires it; [`Config::default`] has `http://127.0.0.1:8000` instead.
    pub upstream: Upstream,
    /// The address that clients connect to. Default `127.0.0.1:8080`.
    pub listen: Bind,
    /// The address of `/stats`, `/metrics` and the other admin paths. Default `127.0.0.1:9464`.
    pub admin: Bind,
    /// The token that the admin address asks for. Default off.
    pub admin_token: Switch<Secret>,
    /// The file of that token, instead. Default off.
    pub admin_token_file: Switch<File>,
    /// What the token is asked for. Default `everything`.
    pub admin_token_for: AdminTokenFor,
    /// Where a line of JSON for each exchange is written: a file, or `-` for standard output. Default off.
    pub access_log: Switch<File>,
    /// The address that receives spans over gRPC. Default `127.0.0.1:4317`.
    pub otlp_grpc: Switch<Bind>,
    /// The address that receives spans over HTTP. Default `127.0.0.1:4318`.
    pub otlp_http: Switch<Bind>,
    /// The collector that received telemetry is forwarded to. Default off.
    pub otlp_forward: Switch<Collector>,
    /// Headers (gRPC: metadata) sent with it, by name in lower case.
    pub otlp_forward_headers: BTreeMap<String, Secret>,
    /// The sampler of the user's own service: it decides which of the traces that Lapwing began are passed on. Default: what
    /// `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` say, else `parentbased_always_on`.
    pub otlp_forward_sampler: TraceSampler,
    /// Which requests are traced. Default `auto`.
    pub trace_sampling: lapwing_proxy::TraceSampling,
    /// Which trace contexts are written beside `traceparent`. Default `auto`.
    pub trace_contexts: TraceContexts,
    /// Whether responses carry `Server-Timing`. Default `false`.
    pub respond_server_timing: bool,
    /// How long requests in flight may take to end after SIGTERM. Default 30 s; 0 to 1 h.
    pub drain_timeout: Period,
    /// What is logged, as a filter of `tracing-subscriber`. Default `info`.
    pub log: String,
    /// The format of log lines. Default `text`.
    pub log_format: LogFormat,
    /// The data plane.
    pub proxy: lapwing_proxy::Config,
    /// How traffic is read.
    pub protocol: lapwing_protocol::Config,
    /// How reports become stages.
    pub attribution: lapwing_attribution::Config,
    /// How much is remembered.
    pub metrics: lapwing_metrics::Config,
    /// The optima that models are compared with.
    pub cost: lapwing_diagnosis::cost::Config,
    /// Whether and over which time Lapwing diagnoses.
    pub diagnosis: lapwing_diagnosis::Config,
    /// Which requests are copied to other targets.
    pub shadow: lapwing_shadow::Config,
    /// What Lapwing sends of its own signals to a collector.
    pub telemetry: lapwing_telemetry::Config,
    /// Models that Lapwing runs itself.
    pub engine: serving::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            upstream: Upstream::Http { authority: "127.0.0.1:8000".to_owned(), h2: false },
            listen: Bind::loopback(8080),
            admin: Bind::loopback(9464),
            admin_token: Switch::Off,
            admin_token_file: Switch::Off,
            admin_token_for: AdminTokenFor::default(),
            access_log: Switch::Off,
            otlp_grpc: Switch::On(Bind::loopback(4317)),
            otlp_http: Switch::On(Bind::loopback(4318)),
            otlp_forward: Switch::Off,
            otlp_forward_headers: BTreeMap::new(),
            otlp_forward_sampler: TraceSampler::default(),
            trace_sampling: lapwing_proxy::TraceSampling::default(),
            trace_contexts: TraceContexts::default(),
            respond_server_timing: false,
            drain_timeout: Period::from_secs(30),
            log: "info".to_owned(),
            log_format: LogFormat::default(),
            proxy: lapwing_proxy::Config::default(),
            protocol: lapwing_protocol::Config::default(),
            attribution: lapwing_attribution::Config::default(),
            metrics: lapwing_metrics::Config::default(),
            cost: lapwing_diagnosis::cost::Config::default(),
            diagnosis: lapwing_diagnosis::Config::default(),
            shadow: lapwing_shadow::Config::default(),
            telemetry: lapwing_telemetry::Config::default(),
            engine: serving::Config::default(),
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[
        ("admin_token", Form::Secret),
        ("otlp_forward_headers", Form::SecretHeaders),
        ("proxy", Form::Section(lapwing_proxy::Config::FORMS)),
        ("protocol", Form::Section(lapwing_protocol::Config::FORMS)),
        ("attribution", Form::Section(lapwing_attribution::Config::FORMS)),
        ("metrics", Form::Section(lapwing_metrics::Config::FORMS)),
        ("cost", Form::Section(lapwing_diagnosis::cost::Config::FORMS)),
        ("diagnosis", Form::Section(lapwing_diagnosis::Config::FORMS)),
        ("shadow", Form::Section(lapwing_shadow::Config::FORMS)),
        ("telemetry", Form::Section(lapwing_telemetry::Config::FORMS)),
        ("engine", Form::Section(serving::Config::FORMS)),
    ];

    fn check(&self, checks: &mut Checks) {
        check_process(self.drain_timeout, &self.log, checks);
        if let Some(Err(reason)) = self.admin_token.on().map(|token| AdminToken::parse(token.expose())) {
            checks.fault("admin_token", &self.admin_token, reason);
        }
        checks.section("proxy", |checks| self.proxy.check(checks));
        checks.section("protocol", |checks| self.protocol.check(checks));
        checks.section("attribution", |checks| self.attribution.check(checks));
        checks.section("metrics", |checks| self.metrics.check(checks));
        checks.section("cost", |checks| self.cost.check(checks));
        checks.section("diagnosis", |checks| self.diagnosis.check(checks));
        checks.section("shadow", |checks| self.shadow.check(checks));
        checks.section("telemetry", |checks| self.telemetry.check(checks));
        checks.section("engine", |checks| self.engine.check(checks));
    }
}

/// Reports faults of the settings that every process has: `drain_timeout` and `log`.
pub(crate) fn check_process(drain_timeout: Period, log: &str, checks: &mut Checks) {
    checks.range("drain_timeout", &drain_timeout, Period::from_secs(0)..=Period::from_secs(3600));
    if let Err(error) = tracing_subscriber::EnvFilter::try_new(log) {
        checks.fault("log", log, format!("is not a log filter, as in info or lapwing=debug,warn: {error}"));
    }
}
