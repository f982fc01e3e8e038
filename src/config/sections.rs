//! The sections, each from the crate that it configures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serving;
use lapwing_dispatch::{NamedUpstream, PlacementPolicy, UpstreamRoute};
use lapwing_outbound::Downstream;
use lapwing_settings::{
    AdminToken, AdminTokenFor, Bind, Checks, Collector, File, Form, HttpScheme, Period, Secret, Section, Switch, Tls,
    TraceContexts, TraceSampler, Upstream,
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The section `config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Reading {
    /// How often Lapwing looks whether the file has changed; `SIGHUP` reloads at once.
    pub watch: Switch<Period>,
}

impl Default for Reading {
    fn default() -> Self {
        Self { watch: Switch::On(Period::from_secs(2)) }
    }
}

impl Section for Reading {
    fn check(&self, checks: &mut Checks) {
        checks.switch_range("watch", &self.watch, Period::from_secs(1)..=Period::from_secs(3600));
    }
}

/// All settings. [`load`](super::load) returns a checked configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The model server. Required, unless there are `upstreams`, or this process serves models itself (`engine`).
    #[schemars(extend("x-fixed-at-start" = true))]
    pub upstream: Upstream,
    /// Several model servers instead of `upstream`, by name, at most 16: replicas, or others for some requests (`routes`). Each is shown
    /// as an `upstream` of its own. A request whose upstream takes no connection goes to another one, once, if nothing was written. Only
    /// weights and tags follow a reload.
    pub upstreams: BTreeMap<String, NamedUpstream>,
    /// How one of `upstreams` is chosen.
    pub upstream_policy: PlacementPolicy,
    /// Which requests go to some of `upstreams` only. The first that takes a request decides; what none takes goes to any.
    pub routes: Vec<UpstreamRoute>,
    /// Stores and services that the model server itself calls, at most 16: its client is given the address `listen` instead, and
    /// what passes is the stage `hydration`, observed (docs/HYDRATION.md).
    #[schemars(extend("x-fixed-at-start" = true))]
    pub downstreams: Vec<Downstream>,
    /// The address that clients connect to.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub listen: Bind,
    /// The address of `/stats`, `/metrics` and the other admin paths.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub admin: Bind,
    /// The token that the admin address asks for: 16 to 4,096 visible ASCII characters.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub admin_token: Switch<Secret>,
    /// The file with that token, instead of `admin_token`. It is read at the start.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub admin_token_file: Switch<File>,
    /// What the token is asked for.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub admin_token_for: AdminTokenFor,
    /// A file, or `-` for standard output, for a line of JSON for each request, as `/exchanges` shows it, without `spans`. Lines
    /// that cannot be written, or behind 4,096 others, are lost and counted (`lapwing_access_log_lines_dropped_total`).
    #[schemars(extend("x-fixed-at-start" = true))]
    pub access_log: Switch<File>,
    /// The address that receives spans over gRPC.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_grpc: Switch<Bind>,
    /// The address that receives spans over HTTP.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_http: Switch<Bind>,
    /// The collector to which metrics, logs and your service's spans are passed on. Over HTTP the base address, without
    /// `/v1/traces`.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_forward: Switch<Collector>,
    /// Headers (gRPC: metadata) that are sent with it, in printable ASCII.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_forward_headers: BTreeMap<String, Secret>,
    /// The sampler of your service. A trace that Lapwing began is forwarded if this sampler takes its id, as the server's SDK does
    /// (Python, Go, Rust, Java, JavaScript). `lapwing_otlp_spans_withheld_total` counts the others.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_forward_sampler: TraceSampler,
    /// Certificates and keys: what speaks TLS, and how.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub tls: Tls,
    /// Which requests are traced.
    pub trace_sampling: lapwing_proxy::TraceSampling,
    /// Which trace contexts are written in addition to `traceparent`. `auto`: those that the client sent, except Datadog's, and
    /// those that the upstream is found to continue; names of `b3`, `b3multi`, `jaeger`, `xray`, `datadog`, with commas: always
    /// these; `none`: no other.
    pub trace_contexts: TraceContexts,
    /// Whether each response head has a `Server-Timing` field with the stages known so far, and a stream the complete list in a
    /// trailer, if the client accepts trailers.
    pub respond_server_timing: bool,
    /// How long requests may take to end after SIGTERM. Keep it below the pod's `terminationGracePeriodSeconds`.
    pub drain_timeout: Period,
    /// What is logged, as a filter of `tracing-subscriber`: `info`, `lapwing_proxy=debug,warn`.
    pub log: String,
    /// The format of log lines.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub log_format: LogFormat,
    /// When the configuration is read again.
    pub config: Reading,
    /// The data plane.
    pub proxy: lapwing_proxy::Config,
    /// How much may be held, and how long, of requests whose body decides where they go (`routes`), when (`dispatch`), whether it
    /// is answered by an earlier answer (`cache`), or is changed
    /// (`proxy.amend`).
    pub hold: lapwing_proxy::hold::Config,
    /// Whether and in which order requests wait in front of upstreams that work on few at once.
    pub dispatch: lapwing_dispatch::Config,
    /// Whether requests are answered by earlier answers to the same question.
    pub cache: lapwing_cache::Config,
    /// How traffic is read.
    pub protocol: lapwing_protocol::Config,
    /// How reports become stages.
    pub attribution: lapwing_attribution::Config,
    /// How much is remembered.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub metrics: lapwing_metrics::Config,
    /// The optima that models are compared with.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub cost: lapwing_diagnosis::cost::Config,
    /// Whether and over which time Lapwing diagnoses.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub diagnosis: lapwing_diagnosis::Config,
    /// Which of `upstreams` is on trial with a share of the requests.
    pub split: lapwing_shadow::split::Config,
    /// What is on and off in turn, so that it shows what it does.
    pub trial: lapwing_shadow::switchback::Config,
    /// Which requests are copied to other targets.
    pub shadow: lapwing_shadow::Config,
    /// What Lapwing sends of its own signals to a collector.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub telemetry: lapwing_telemetry::Config,
    /// Models that Lapwing runs itself.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub engine: serving::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            upstream: Upstream::Http { authority: "127.0.0.1:8000".to_owned(), scheme: HttpScheme::Http },
            upstreams: BTreeMap::new(),
            upstream_policy: PlacementPolicy::default(),
            routes: Vec::new(),
            downstreams: Vec::new(),
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
            tls: Tls::default(),
            trace_sampling: lapwing_proxy::TraceSampling::default(),
            trace_contexts: TraceContexts::default(),
            respond_server_timing: false,
            drain_timeout: Period::from_secs(30),
            log: "info".to_owned(),
            log_format: LogFormat::default(),
            config: Reading::default(),
            proxy: lapwing_proxy::Config::default(),
            hold: lapwing_proxy::hold::Config::default(),
            dispatch: lapwing_dispatch::Config::default(),
            cache: lapwing_cache::Config::default(),
            protocol: lapwing_protocol::Config::default(),
            attribution: lapwing_attribution::Config::default(),
            metrics: lapwing_metrics::Config::default(),
            cost: lapwing_diagnosis::cost::Config::default(),
            diagnosis: lapwing_diagnosis::Config::default(),
            split: lapwing_shadow::split::Config::default(),
            trial: lapwing_shadow::switchback::Config::default(),
            shadow: lapwing_shadow::Config::default(),
            telemetry: lapwing_telemetry::Config::default(),
            engine: serving::Config::default(),
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[
        ("upstreams", Form::Named(&Form::Record(&lapwing_dispatch::UPSTREAM))),
        ("routes", Form::List(&lapwing_dispatch::ROUTE)),
        ("downstreams", Form::List(&lapwing_outbound::DOWNSTREAM)),
        ("admin_token", Form::Secret),
        ("otlp_forward_headers", Form::SecretHeaders),
        ("config", Form::Section(Reading::FORMS)),
        ("tls", Form::Section(Tls::FORMS)),
        ("proxy", Form::Section(lapwing_proxy::Config::FORMS)),
        ("hold", Form::Section(lapwing_proxy::hold::Config::FORMS)),
        ("dispatch", Form::Section(lapwing_dispatch::Config::FORMS)),
        ("cache", Form::Section(lapwing_cache::Config::FORMS)),
        ("protocol", Form::Section(lapwing_protocol::Config::FORMS)),
        ("attribution", Form::Section(lapwing_attribution::Config::FORMS)),
        ("metrics", Form::Section(lapwing_metrics::Config::FORMS)),
        ("cost", Form::Section(lapwing_diagnosis::cost::Config::FORMS)),
        ("diagnosis", Form::Section(lapwing_diagnosis::Config::FORMS)),
        ("split", Form::Section(lapwing_shadow::split::Config::FORMS)),
        ("trial", Form::Section(lapwing_shadow::switchback::Config::FORMS)),
        ("shadow", Form::Section(lapwing_shadow::Config::FORMS)),
        ("telemetry", Form::Section(lapwing_telemetry::Config::FORMS)),
        ("engine", Form::Section(serving::Config::FORMS)),
    ];

    fn check(&self, checks: &mut Checks) {
        check_process(self.drain_timeout, &self.log, checks);
        lapwing_dispatch::check_upstreams(&self.upstreams, &self.routes, checks);
        lapwing_outbound::check_downstreams(&self.downstreams, checks);
        if let Some(Err(reason)) = self.admin_token.on().map(|token| AdminToken::parse(token.expose())) {
            checks.fault("admin_token", &self.admin_token, reason);
        }
        checks.section("config", |checks| self.config.check(checks));
        checks.section("tls", |checks| self.tls.check(checks));
        checks.section("proxy", |checks| self.proxy.check(checks));
        checks.section("hold", |checks| self.hold.check(checks));
        checks.section("dispatch", |checks| self.dispatch.check(checks));
        checks.section("cache", |checks| self.cache.check(checks));
        checks.section("protocol", |checks| self.protocol.check(checks));
        checks.section("attribution", |checks| self.attribution.check(checks));
        checks.section("metrics", |checks| self.metrics.check(checks));
        checks.section("cost", |checks| self.cost.check(checks));
        checks.section("diagnosis", |checks| self.diagnosis.check(checks));
        checks.section("split", |checks| self.split.check(checks));
        checks.section("trial", |checks| self.trial.check(checks));
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
