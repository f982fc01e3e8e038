//! Whether the upstreams answer, whether they say that they are ready, and which servers they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

use super::check::DoctorReport;
use super::running::DoctorStats;
use crate::config::Config;
use lapwing_attribution::{DESCRIPTION_PATHS, described_server};
use lapwing_ledger::Server;
use lapwing_net::{Body, Client, ClientError, ClientIdentity, ClientLimits, Target, error_text};
use lapwing_settings::{ClientTls, HttpScheme, Upstream};

/// Where servers say whether they are ready; `/` is what a server of none of these answers too.
const HEALTH: [&str; 7] = ["/v2/health/ready", "/health", "/healthz", "/readyz", "/ping", "/-/healthz", "/"];
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most of a description that is read.
const MAX_BODY: usize = 1 << 20;

/// An upstream of the configuration.
struct ConfiguredUpstream<'a> {
    /// `upstream`, or `upstreams.NAME`.
    setting: String,
    /// As `/stats` names it.
    label: String,
    url: &'a Upstream,
    tls: (&'a str, &'a ClientTls),
}

pub(crate) async fn check(config: &Config, stats: Option<&DoctorStats>, report: &mut DoctorReport) {
    for upstream in configured(config) {
        let is_own =
            config.engine.address().and_then(lapwing_settings::Bind::reached_at).is_some_and(
                |address| matches!(upstream.url, Upstream::Http { authority, .. } if *authority == address.to_string()),
            );
        if is_own && stats.is_none() {
            report.ok(upstream.setting, format!("{} is this Lapwing's own engine, which it starts", upstream.url));
            continue;
        }
        let identity = ClientIdentity::load(upstream.tls.0, upstream.tls.1).unwrap_or_default();
        let asked = answering(upstream.url, &identity).await;
        let client = match asked {
            Ok(health) => {
                health.tell(&upstream, report);
                Some(health.client)
            }
            Err(error) => {
                let advice = advice(&upstream, &error);
                report.wrong(&upstream.setting, format!("{} does not answer: {}", upstream.url, error_text(&error)), advice);
                None
            }
        };
        server(&upstream, stats, client, report).await;
    }
}

fn configured(config: &Config) -> Vec<ConfiguredUpstream<'_>> {
    let shared = ("tls.upstream", &config.tls.upstream);
    let several = config.upstreams.iter().map(|(name, one)| ConfiguredUpstream {
        setting: format!("upstreams.{name}"),
        label: name.clone(),
        url: &one.url,
        tls: one.tls.as_ref().map_or(shared, |tls| ("upstreams.*.tls", tls)),
    });
    let several: Vec<_> = several.collect();
    if !several.is_empty() {
        return several;
    }
    let url = &config.upstream;
    vec![ConfiguredUpstream { setting: "upstream".to_owned(), label: url.to_string(), url, tls: shared }]
}

fn advice(upstream: &ConfiguredUpstream<'_>, error: &ClientError) -> String {
    let setting = &upstream.setting;
    match (error, upstream.url) {
        (ClientError::Timeout(_), _) => "see whether the server hangs, or a firewall drops what is sent to it".to_owned(),
        (ClientError::Connect { .. }, Upstream::Http { scheme: HttpScheme::Https, .. }) => {
            format!(
                "see whether the server runs there, whether its certificate is valid, and whether {}.ca has its authority",
                upstream.tls.0
            )
        }
        (ClientError::Connect { .. }, Upstream::Unix { .. }) => {
            format!(
                "start the server, let its socket be writable for the user that runs Lapwing, or set {setting} to where it listens"
            )
        }
        (ClientError::Connect { .. }, _) => format!("start the server, or set {setting} to where it listens"),
        _ => format!(
            "see whether it is an HTTP server that listens there (over TLS {setting} is https://…, for HTTP/2 alone h2c://…)"
        ),
    }
}

/// A server that speaks HTTP, and what it says of its health.
struct Health {
    client: Client,
    path: &'static str,
    status: StatusCode,
}

impl Health {
    fn tell(&self, upstream: &ConfiguredUpstream<'_>, report: &mut DoctorReport) {
        let found = format!("{} answers {} to {}", upstream.url, self.status.as_u16(), self.path);
        if self.status.is_server_error() {
            let advice = "see in the server's log why it is not ready: a model may still be loading";
            report.wrong(&upstream.setting, found, advice);
        } else {
            report.ok(&upstream.setting, found);
        }
    }
}

/// Asks by HTTP/1.1, and by HTTP/2 what does not speak that.
async fn answering(url: &Upstream, identity: &Arc<ClientIdentity>) -> Result<Health, ClientError> {
    let limits = ClientLimits { connect_timeout: TIMEOUT, timeout: TIMEOUT, max_body: MAX_BODY, ..ClientLimits::default() };
    let target = Target::of(url, identity);
    let http2 = Client::http2(target.clone(), limits);
    if matches!(url, Upstream::Http { scheme: HttpScheme::H2c, .. }) {
        return health(http2).await;
    }
    match health(Client::new(target, limits)).await {
        Err(ClientError::Exchange(error)) => health(http2).await.map_err(|_| ClientError::Exchange(error)),
        asked => asked,
    }
}

/// The first success, or failure of a path of health; else what it answers to `/`.
async fn health(client: Client) -> Result<Health, ClientError> {
    let mut last = StatusCode::OK;
    for path in HEALTH {
        last = get(&client, path).await?.status();
        if last.is_success() || last == StatusCode::SERVICE_UNAVAILABLE {
            return Ok(Health { client, path, status: last });
        }
    }
    // a path that it does not have, or fails on, says nothing of its health
    let status = if last.is_server_error() { StatusCode::NOT_FOUND } else { last };
    Ok(Health { client, path: "/", status })
}

async fn get(client: &Client, path: &str) -> Result<http::Response<Body>, ClientError> {
    let request = Request::get(path).body(Full::<Bytes>::default()).map_err(ClientError::Request)?;
    client.send(request).await
}

/// Says which server it is: as requests showed, else as it describes itself.
async fn server(
    upstream: &ConfiguredUpstream<'_>,
    stats: Option<&DoctorStats>,
    client: Option<Client>,
    report: &mut DoctorReport,
) {
    let name = upstream.setting.replacen("upstream", "server", 1);
    let series = || stats.into_iter().flat_map(|stats| &stats.series).filter(|series| series.upstream == upstream.label);
    if let Some(server) = series().find_map(|series| Server::from_name(series.server.as_deref()?)) {
        return report.ok(name, format!("{}, as its answers to clients show", server.title()));
    }
    // what does not answer says nothing
    let Some(client) = client else { return };
    for path in DESCRIPTION_PATHS {
        if let Some(server) = described(&client, path).await {
            return report.ok(name, format!("{}, as it says at {path}", server.title()));
        }
    }
    if series().any(|series| series.reported() > 0) {
        return report.ok(name, "none that Lapwing knows by name; it reports its stages itself");
    }
    report.note(
        name,
        "not recognised, by neither its answers to clients nor /v2 and /metrics",
        "if it is one of `lapwing upstream-flags`, send it a request; a handler of your own reports by Server-Timing or spans (docs/REPORTING.md)",
    );
}

async fn described(client: &Client, path: &str) -> Option<Server> {
    let answer = get(client, path).await.ok().filter(|answer| answer.status().is_success())?;
    let body = Limited::new(answer.into_body(), MAX_BODY).collect().await.ok()?;
    described_server(path, &body.to_bytes())
}
