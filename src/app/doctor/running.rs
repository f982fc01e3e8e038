//! The Lapwing that runs, as its admin address shows it: its configuration, its figures, and what it misses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::check::DoctorReport;
use super::process::Processes;
use crate::config::{Config, Loaded};
use lapwing_console::admin_client::AdminTlsArgs;
use lapwing_console::admin_token;
use lapwing_diagnosis::TelemetryGap;
use lapwing_net::{Client, ClientIdentity, ClientLimits, Target, error_text};
use lapwing_settings::{HttpScheme, Upstream};

const NAME: &str = "lapwing";
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So many settings that differ are named.
const NAMED: usize = 4;

/// Who answers at the admin address.
pub(crate) enum AdminAnswer {
    /// A Lapwing.
    Found(Box<RunningFigures>),
    /// Nobody; why not.
    Silent(String),
    /// Something whose figures cannot be read; what it answers.
    Closed(String),
}

/// What it says of itself.
pub(crate) struct RunningFigures {
    pub(crate) config: ShownConfig,
    pub(crate) stats: DoctorStats,
    pub(crate) exchanges: Vec<DoctorExchange>,
    /// What is missing of its figures, and the change that brings it.
    pub(crate) missing: Vec<TelemetryGap>,
}

/// The parts of `/config`.
#[derive(Default, Deserialize)]
pub(crate) struct ShownConfig {
    pub(crate) values: Json,
    pub(crate) generation: u64,
    #[serde(default)]
    needs_restart: Vec<String>,
    #[serde(default)]
    failed_reload: Option<Json>,
}

/// The parts of `/stats`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct DoctorStats {
    pub(crate) series: Vec<DoctorSeries>,
    profiler: Profiler,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Profiler {
    uptime_ns: u64,
}

/// One route × model × upstream.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct DoctorSeries {
    pub(crate) upstream: String,
    /// By the name on every surface.
    pub(crate) server: Option<String>,
    pub(crate) total: DoctorFigures,
    pub(crate) stages: BTreeMap<String, DoctorFigures>,
}

impl DoctorSeries {
    /// How many answered requests have a stage that the server reported: of the stages, the one that most of them have.
    pub(crate) fn reported(&self) -> u64 {
        let of = |figures: &DoctorFigures| ["reported", "traced"].iter().filter_map(|source| figures.sources.get(*source)).sum();
        self.stages.values().map(of).max().unwrap_or_default()
    }
}

/// How many durations, and by source.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct DoctorFigures {
    pub(crate) count: u64,
    pub(crate) sources: BTreeMap<String, u64>,
}

/// The parts of one of `/exchanges`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct DoctorExchange {
    pub(crate) spans: Vec<PlacedSpan>,
}

/// A claim as it was placed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlacedSpan {
    pub(crate) source: String,
    pub(crate) shifted_ns: Option<i64>,
}

#[derive(Deserialize)]
struct Exchanges {
    exchanges: Vec<DoctorExchange>,
}

#[derive(Deserialize)]
struct Missing {
    missing: Vec<TelemetryGap>,
}

impl AdminAnswer {
    /// Asks the admin address of the configuration.
    pub(crate) async fn ask(config: &Config, tls: &AdminTlsArgs) -> Self {
        let Some(address) = config.admin.reached_at() else { return Self::Silent("the system chooses its port".to_owned()) };
        let scheme = if config.tls.admin.certificate.is_on() { HttpScheme::Https } else { HttpScheme::Http };
        let identity = match tls.identity() {
            Ok(identity) => identity,
            Err(fault) => return Self::Silent(fault.to_string()),
        };
        // the configuration was checked
        let token = admin_token::of(&config.admin_token, &config.admin_token_file).ok().flatten();
        let authorization = token.map(|token| token.authorization());
        let asked = AdminAddress { client: client(address.to_string(), scheme, &identity), authorization };
        match asked.get::<ShownConfig>("/config").await {
            Ok(config) => Self::Found(Box::new(asked.figures(config).await)),
            Err(unheard) => unheard,
        }
    }

    /// The one that runs.
    pub(crate) fn found(&self) -> Option<&RunningFigures> {
        if let Self::Found(found) = self { Some(found) } else { None }
    }
}

fn client(authority: String, scheme: HttpScheme, identity: &Arc<ClientIdentity>) -> Client {
    let limits = ClientLimits { timeout: TIMEOUT, max_body: 64 << 20, ..ClientLimits::default() };
    Client::new(Target::of(&Upstream::Http { authority, scheme }, identity), limits)
}

struct AdminAddress {
    client: Client,
    authorization: Option<String>,
}

impl AdminAddress {
    async fn figures(&self, config: ShownConfig) -> RunningFigures {
        let exchanges = self.get::<Exchanges>("/exchanges?limit=200").await.map(|found| found.exchanges);
        // without a diagnosis (`diagnosis.enabled`), nothing is known to be missing
        let missing = self.get::<Missing>("/diagnosis?format=json").await.map(|found| found.missing);
        RunningFigures {
            config,
            stats: self.get("/stats?window=all").await.unwrap_or_default(),
            exchanges: exchanges.unwrap_or_default(),
            missing: missing.unwrap_or_default(),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminAnswer> {
        let request = Request::get(path).header(ACCEPT, "application/json");
        let signed = self.authorization.iter().fold(request, |request, value| request.header(AUTHORIZATION, value));
        let request = signed.body(Full::<Bytes>::default()).map_err(|error| AdminAnswer::Silent(error.to_string()))?;
        let answer = self.client.fetch(request).await.map_err(|error| match error {
            lapwing_net::ClientError::Connect { .. } => AdminAnswer::Silent(error_text(&error)),
            error => AdminAnswer::Closed(format!("does not answer as a Lapwing: {}", error_text(&error))),
        })?;
        match answer.status() {
            StatusCode::UNAUTHORIZED => {
                Err(AdminAnswer::Closed("asks for another admin token than the configuration's".to_owned()))
            }
            status => serde_json::from_slice(answer.body())
                .map_err(|_| AdminAnswer::Closed(format!("does not answer as a Lapwing: {status} to {path}"))),
        }
    }
}

/// Says who answers at the admin address; its process, if it can be seen.
pub(crate) fn check(running: &AdminAnswer, loaded: &Loaded, processes: &Processes, report: &mut DoctorReport) -> Option<u32> {
    let admin = loaded.config.admin;
    let holder = admin.reached_at().and_then(|address| processes.holder(address));
    let pid = holder.filter(|holder| holder.is_lapwing()).map(|holder| holder.pid);
    let figures = match running {
        AdminAnswer::Found(figures) => figures,
        AdminAnswer::Silent(reason) => {
            let advice = "start it (lapwing serve, systemctl start lapwing), or give the settings of the one that runs, \
                with --admin-ca if it speaks TLS; what it alone knows (reports, clocks) is not looked at";
            report.note(NAME, format!("none answers at {admin}: {reason}"), advice);
            return pid;
        }
        AdminAnswer::Closed(said) => {
            let advice = "give the settings of the Lapwing that runs (--config, --admin), or see who holds the port (admin)";
            report.note(NAME, format!("what listens at {admin} {said}"), advice);
            return pid;
        }
    };
    let by = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let up = humantime::format_duration(Duration::from_secs(figures.stats.profiler.uptime_ns / 1_000_000_000));
    let found = format!("answers at {admin}{by}, for {up}, configuration {}", figures.config.generation);
    let values = &loaded.masked_json()["values"];
    let mut differing = Vec::new();
    differences(values, &figures.config.values, "", &mut differing);
    if let Some(failed) = &figures.config.failed_reload {
        let fault = failed["faults"][0].as_str().unwrap_or_default();
        report.wrong(
            NAME,
            format!("{found}: the last reload failed: {fault}"),
            "correct the file; it is read again at once, or at SIGHUP",
        );
    } else if !figures.config.needs_restart.is_empty() {
        let advice = format!("restart it: {}", figures.config.needs_restart.join(", "));
        report.note(NAME, format!("{found}, of which some settings need a restart"), advice);
    } else if !differing.is_empty() {
        let more = if differing.len() > NAMED { ", …" } else { "" };
        let named = differing.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let advice = "give doctor the file, variables and flags of that one, or restart it with these";
        report.note(NAME, format!("{found}; it has other settings than were given here: {named}{more}"), advice);
    } else {
        report.ok(NAME, format!("{found}, as given here"));
    }
    pid
}

/// The paths of the settings that differ.
fn differences(given: &Json, shown: &Json, path: &str, out: &mut Vec<String>) {
    match (given, shown) {
        (Json::Object(given), Json::Object(shown)) => {
            let names = given.keys().chain(shown.keys().filter(|name| !given.contains_key(*name)));
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differences(given.get(name).unwrap_or(&Json::Null), shown.get(name).unwrap_or(&Json::Null), &path, out);
            }
        }
        _ if given != shown => out.push(path.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_that_differ_are_named_by_path() {
        let mut paths = Vec::new();
        let given = json!({"listen": "a", "proxy": {"workers": 1, "max": 2}, "routes": [1], "same": {}});
        let shown = json!({"listen": "a", "proxy": {"workers": 2, "max": 2, "new": 0}, "routes": [1, 2], "same": {}});
        differences(&given, &shown, "", &mut paths);
        assert_eq!(paths, ["proxy.workers", "proxy.new", "routes"]);
    }

    fn series(stages: &serde_json::Value, count: u64) -> DoctorSeries {
        serde_json::from_value(json!({"upstream": "u", "total": {"count": count}, "stages": stages})).unwrap()
    }

    #[test]
    fn requests_count_once_by_the_stage_that_most_have() {
        let of = series(
            &json!({"forward": {"sources": {"traced": 7, "reported": 1}}, "queue": {"sources": {"traced": 3}},
            "ingress": {"sources": {"observed": 10}}}),
            10,
        );
        assert_eq!(of.reported(), 8);
        assert_eq!(series(&json!({}), 4).reported(), 0);
    }
}
