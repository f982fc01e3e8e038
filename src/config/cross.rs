//! Settings that are valid one by one but contradict one another, and settings that are allowed but unwise.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::root::Root;
use super::sections::Config;
use lapwing_attribution::SpanExpectation;
use lapwing_attribution::collector::Signal;
use lapwing_cache::CacheMode;
use lapwing_dispatch::{DispatchMode, HedgeMode};
use lapwing_outbound::LISTEN_KEYS;
use lapwing_proxy::TraceSampling;
use lapwing_settings::{Bind, Checks, DownstreamAddress, HttpScheme, Poll, Secret, ShadowTarget, Switch, Upstream};
use lapwing_shadow::CopyOrder;
use lapwing_shadow::switchback::TrialLever;

impl Root for Config {
    fn complete(&mut self, is_given: &dyn Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
        if is_given("upstream") {
            return Vec::new();
        }
        // what is asked of one upstream is asked of the first
        if let Some(first) = self.upstreams.values().next() {
            self.upstream = first.url.clone();
            return Vec::new();
        }
        // models that this process serves itself are the model server, unless another one is named
        match self.engine.address().and_then(Bind::reached_at) {
            Some(address) => self.upstream = Upstream::Http { authority: address.to_string(), scheme: HttpScheme::Http },
            None => {
                return vec![(
                    "upstream",
                    "is required: give --upstream URL, LAPWING_UPSTREAM, or `upstream:` or `upstreams:` in the file",
                )];
            }
        }
        Vec::new()
    }

    fn check_together(&self, checks: &mut Checks, is_given: &dyn Fn(&str) -> bool) {
        check(self, checks, is_given);
    }

    fn warnings(&self) -> Vec<String> {
        warnings(self)
    }

    fn uses(&self, section: &str) -> bool {
        section != "telemetry" || self.telemetry.is_on()
    }
}

/// The key of the headers that are sent with forwarded telemetry.
const HEADERS: &str = "otlp_forward_headers";
/// Headers that OTLP itself or HTTP sets.
const OWN_HEADERS: [&str; 7] =
    ["connection", "content-encoding", "content-length", "content-type", "host", "te", "transfer-encoding"];

/// Reports contradictions. Of two settings, the one that the user gave is at fault; `is_given` tells whether a key was given.
pub(crate) fn check(config: &Config, checks: &mut Checks, is_given: &dyn Fn(&str) -> bool) {
    let binds = binds(config);
    for (at, (key, bind)) in binds.iter().enumerate() {
        for (earlier, other) in &binds[..at] {
            if bind.collides(*other) && checks.is_sound(key) && checks.is_sound(earlier) {
                let (wrong, bind, right, other) =
                    if is_given(key) || !is_given(earlier) { (key, bind, earlier, other) } else { (earlier, other, key, bind) };
                checks.fault(wrong, bind, format!("collides with {right}, which listens on {other}"));
            }
        }
    }
    upstreams(config, checks, &binds, is_given);
    config.split.check_with(config.upstreams.keys().map(String::as_str), checks);
    config.trial.check_with(config.upstreams.len(), checks);
    spare(config, checks);
    if let Switch::On(collector) = &config.otlp_forward
        && let Some((key, _)) = binds.iter().find(|(key, bind)| checks.is_sound(key) && reaches(collector.authority(), *bind))
    {
        checks.fault("otlp_forward", collector, format!("is Lapwing itself: {key} listens there"));
    }
    telemetry(config, checks, &binds);
    if let Poll::At { authority, .. } = &config.attribution.poll
        && let Some((key, _)) = binds.iter().find(|(key, bind)| checks.is_sound(key) && reaches(authority, *bind))
    {
        checks.fault("attribution.poll", &config.attribution.poll, format!("is Lapwing itself: {key} listens there"));
    }
    if let Switch::On(file) = &config.admin_token_file
        && !file.path().is_file()
    {
        checks.fault("admin_token_file", file, "is not a file");
    }
    if config.admin_token.is_on() && config.admin_token_file.is_on() {
        checks.fault("admin_token_file", &config.admin_token_file, "admin_token has the token already: give one of them");
    }
    if let Switch::On(file) = &config.cache.warm.file
        && config.tls.listen.is_on()
    {
        let reason = "Lapwing cannot send itself requests where tls.listen is on: use `lapwing warm --to https://…`";
        checks.fault("cache.warm.file", file, reason);
    }
    downstreams(config, checks, &binds);
    shadow_targets(config, checks, &binds);
    headers(config, checks);
}

/// The upstream for second requests only: one that the shadow asks too, for its answers must be the same.
fn spare(config: &Config, checks: &mut Checks) {
    const KEY: &str = "dispatch.hedge.spare";
    let Some(spare) = config.dispatch.hedge.spare() else { return };
    let Some(upstream) = config.upstreams.get(spare) else {
        return checks.fault(KEY, spare, "is none of `upstreams`");
    };
    let is_asked = config.shadow.targets.get(spare).is_some_and(|target| *target == ShadowTarget::Server(upstream.url.clone()));
    if !is_asked {
        let reason = format!("needs shadow.targets.{spare}: {}, for nobody knows whether its answers are the same", upstream.url);
        checks.fault(KEY, spare, reason);
    } else if config.upstreams.len() < 2 {
        checks.fault(KEY, spare, "is the only one of `upstreams`: somebody has to be sent the first requests");
    } else if config.split.candidate == spare {
        checks.fault(KEY, spare, "is split.candidate, which is sent requests of its own");
    } else if let Some(at) = config.routes.iter().position(|route| route.to.iter().any(|to| to == spare)) {
        checks.fault(KEY, spare, format!("is named in routes[{at}].to, and is sent second requests only"));
    }
}

/// The model servers: `upstream`, or `upstreams`.
fn upstreams(config: &Config, checks: &mut Checks, binds: &[(&'static str, Bind)], is_given: &dyn Fn(&str) -> bool) {
    // a configuration that is printed has both: `upstream` is the first of the others then
    let is_another = config.upstreams.values().next().is_some_and(|first| first.url != config.upstream);
    if is_another && is_given("upstream") && checks.is_sound("upstreams") {
        checks.fault("upstream", &config.upstream, "cannot be given with upstreams: name it there, as in a: {url: …}");
    }
    if config.upstreams.len() > 1 && matches!(config.attribution.poll, Poll::At { .. }) {
        let reason = "is one address, and there are several upstreams: leave it auto, which asks each, or set it to off";
        checks.fault("attribution.poll", &config.attribution.poll, reason);
    }
    let named = config.upstreams.iter().map(|(name, one)| (format!("upstreams.{name}.url"), &one.url));
    let only = config.upstreams.is_empty().then(|| ("upstream".to_owned(), &config.upstream));
    for (key, upstream) in named.chain(only) {
        // the engine is a model server like any other
        if let Upstream::Http { authority, .. } = upstream
            && let Some((own, _)) =
                binds.iter().find(|(own, bind)| *own != "engine.listen" && checks.is_sound(own) && reaches(authority, *bind))
        {
            checks.fault(&key, upstream, format!("is Lapwing itself: {own} listens there"));
        }
    }
}

/// What the model server calls through Lapwing.
fn downstreams(config: &Config, checks: &mut Checks, binds: &[(&'static str, Bind)]) {
    for (at, one) in config.downstreams.iter().enumerate() {
        // the engine serves models, which are a service like any other
        if let DownstreamAddress::Tcp { authority, .. } = &one.to
            && let Some((own, _)) =
                binds.iter().find(|(own, bind)| *own != "engine.listen" && checks.is_sound(own) && reaches(authority, *bind))
        {
            checks.fault(&format!("downstreams[{at}].to"), &one.to, format!("is Lapwing itself: {own} listens there"));
        }
    }
}

fn shadow_targets(config: &Config, checks: &mut Checks, binds: &[(&'static str, Bind)]) {
    // which of several answered is known once one has
    let is_concurrent = config.shadow.order == CopyOrder::Concurrent;
    if is_concurrent && config.split.compares() {
        checks.fault("split.compare", true, "needs shadow.order: after, because a copy goes to the side that did not answer");
    }
    if is_concurrent && config.shadow.is_on() && config.shadow.noise.get() > 0.0 && config.upstreams.len() > 1 {
        let reason = "needs shadow.order: after where there are several upstreams, of which the one that answered is asked again";
        checks.fault("shadow.noise", config.shadow.noise, reason);
    }
    for (name, target) in &config.shadow.targets {
        let key = format!("shadow.targets.{name}");
        match target {
            ShadowTarget::Server(Upstream::Http { authority, .. }) => {
                // the engine is a model server like any other
                let own =
                    binds.iter().find(|(key, bind)| *key != "engine.listen" && checks.is_sound(key) && reaches(authority, *bind));
                if let Some((own, _)) = own {
                    checks.fault(&key, target, format!("is Lapwing itself: {own} listens there"));
                }
            }
            ShadowTarget::Engine(_) if !cfg!(feature = "engine") => {
                checks.fault(&key, target, "needs the embedded engine; this build was made without the feature `engine`");
            }
            ShadowTarget::Engine(path) if !path.is_file() => checks.fault(&key, target, "is not a file"),
            ShadowTarget::Server(Upstream::Unix { .. }) | ShadowTarget::Engine(_) => {}
        }
    }
}

/// What is sent must not come back by Lapwing's own receiver: it would be forwarded, or counted as the model server's.
fn telemetry(config: &Config, checks: &mut Checks, binds: &[(&'static str, Bind)]) {
    for (signal, own) in [(Signal::Metrics, "metrics_endpoint"), (Signal::Traces, "traces_endpoint")] {
        let Some(to) = config.telemetry.endpoint(signal) else { continue };
        let key = if config.telemetry.has_own_endpoint(signal) { own } else { "endpoint" };
        if let Some((bind, _)) = binds.iter().find(|(bind, at)| checks.is_sound(bind) && reaches(to.authority(), *at)) {
            let reason = format!("is Lapwing itself: {bind} listens there; give the collector's own address");
            checks.fault(&format!("telemetry.{key}"), to, reason);
        }
    }
    if config.telemetry.endpoint(Signal::Traces).is_some() && config.trace_sampling == TraceSampling::Off {
        checks.fault("telemetry.traces", "on", "needs the ids of traces: trace_sampling is off");
    }
    if config.telemetry.is_on() {
        header_values("telemetry.headers", &config.telemetry.headers, checks);
    }
}

fn header_values(section: &str, headers: &BTreeMap<String, Secret>, checks: &mut Checks) {
    let mask = Secret::new("");
    for (name, value) in headers {
        let key = format!("{section}.{name}");
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            checks.fault(&key, &mask, "is not a header name");
        } else if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            checks.fault(&key, &mask, "is a header that Lapwing sets itself");
        } else if !value.expose().bytes().all(|b| matches!(b, b' '..=b'~')) {
            checks.fault(&key, &mask, "must be printable ASCII, as header values are");
        }
    }
}

fn headers(config: &Config, checks: &mut Checks) {
    let mask = Secret::new("");
    header_values(HEADERS, &config.otlp_forward_headers, checks);
    for (model, cost) in &config.cost.models {
        if let Some(engine) = cost.engine.as_ref().filter(|engine| !config.engine.serves(engine)) {
            checks.fault(&format!("cost.models.{model}.engine"), engine, "is no model of engine.model and engine.models");
        }
    }
    if !config.otlp_forward_headers.is_empty() && !config.otlp_forward.is_on() && checks.is_sound("otlp_forward") {
        checks.fault(HEADERS, &mask, "has no effect while otlp_forward is off");
    }
}

/// Warnings about settings that are allowed but probably a mistake.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if !config.split.is_on() && config.split != lapwing_shadow::split::Config::default() {
        warnings.push("split: has no effect without split.candidate".to_owned());
    }
    for (at, route) in config.routes.iter().enumerate().filter(|_| !config.protocol.read_bodies) {
        let awaited = [("model", route.matches.model.is_some()), ("class", route.matches.class.is_some())];
        for (key, _) in awaited.into_iter().filter(|(_, is_given)| *is_given) {
            warnings.push(format!("routes[{at}].match.{key}: is not looked for in bodies: protocol.read_bodies is false"));
        }
    }
    if config.trial.lever == TrialLever::Off && config.trial != lapwing_shadow::switchback::Config::default() {
        warnings.push("trial: has no effect without trial.lever".to_owned());
    }
    if config.dispatch.mode != DispatchMode::Off && !config.protocol.read_bodies {
        warnings.push(
            "dispatch.mode: has no effect: what requests ask for is not read, for protocol.read_bodies is false".to_owned(),
        );
    }
    let hedges = config.dispatch.hedge.mode != HedgeMode::Off || config.trial.lever == TrialLever::Hedge;
    let waits = config.dispatch.mode == DispatchMode::On || config.trial.lever == TrialLever::Dispatch;
    if hedges && !waits {
        warnings.push("dispatch.hedge: has no effect unless requests wait by dispatch.mode: on".to_owned());
    } else if hedges && config.upstreams.len() < 2 {
        warnings.push("dispatch.hedge: has no effect: it needs at least two of `upstreams`".to_owned());
    }
    let is_cached = |mode| mode != CacheMode::Off;
    let caches = is_cached(config.cache.mode) || config.cache.routes.iter().any(|route| route.mode.is_some_and(is_cached));
    if config.trial.lever == TrialLever::Cache && !caches {
        warnings.push("trial.lever: cache has no effect where cache.mode is off: observe is enough".to_owned());
    }
    let keeps = config.cache.mode == CacheMode::On || config.cache.routes.iter().any(|route| route.mode == Some(CacheMode::On));
    if config.cache.warm.file.is_on() && !keeps {
        warnings.push("cache.warm: has no effect: cache.mode is not on, so no answer is kept".to_owned());
    }
    let receivers = [("otlp_grpc", config.otlp_grpc), ("otlp_http", config.otlp_http)];
    for (key, receiver) in receivers {
        if let Switch::On(bind) = receiver
            && !bind.get().ip().to_canonical().is_loopback()
        {
            warnings.push(format!(
                "{key}: {bind}: anyone who can reach this address can report false stages; 127.0.0.1 is enough within a pod"
            ));
        }
    }
    if receivers.iter().all(|(_, receiver)| !receiver.is_on()) {
        if let Switch::On(collector) = &config.otlp_forward {
            warnings.push(format!("otlp_forward: {collector}: there is nothing to forward: otlp_grpc and otlp_http are off"));
        }
        if config.attribution.expect_spans == SpanExpectation::Always {
            warnings.push(format!(
                "attribution.expect_spans: always: every request waits {} for spans that cannot arrive: otlp_grpc and otlp_http are off",
                config.attribution.grace
            ));
        }
    }
    warnings
}

fn binds(config: &Config) -> Vec<(&'static str, Bind)> {
    let mut binds = vec![("listen", config.listen), ("admin", config.admin)];
    binds.extend(config.otlp_grpc.on().map(|bind| ("otlp_grpc", *bind)));
    binds.extend(config.otlp_http.on().map(|bind| ("otlp_http", *bind)));
    binds.extend(config.engine.address().map(|bind| ("engine.listen", bind)));
    binds.extend(LISTEN_KEYS.into_iter().zip(&config.downstreams).map(|(key, one)| (key, one.listen)));
    binds
}

/// Whether a connection to `authority` certainly arrives at `bind`. Names other than `localhost` are not looked up.
fn reaches(authority: &str, bind: Bind) -> bool {
    let address = match authority.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
        None => authority.parse::<SocketAddr>().ok(),
    };
    let bound = bind.get();
    address.is_some_and(|address| {
        let here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        bound.port() != 0
            && address.port() == bound.port()
            && (address.ip() == bound.ip() || (bound.ip().is_unspecified() && here(address.ip())))
    })
}
