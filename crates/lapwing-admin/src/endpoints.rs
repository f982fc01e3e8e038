//! The table of the admin address: each path with its method, who may ask, its query, its answers and its handler. The router, the list at
//! `/` and `/openapi.json` are made of it, so none can have a path that the others lack.

use axum::http::HeaderMap;
use axum::routing::{MethodRouter, get, post};
use schemars::{Schema, SchemaGenerator, json_schema};

use super::answers::{Admin, JSON, TEXT};
use super::cache::{self, CachePurge, CacheView};
use super::dispatch::DispatchView;
use super::shadow::ShadowView;
use super::split::SplitView;
use super::stats::Stats;
use super::trials::TrialView;
use super::{handlers, leave, page, query, record};
use lapwing_diagnosis::{Diagnosis, DiagnosisWindow};
use lapwing_metrics::exposition::ExpositionFormat;
use lapwing_metrics::views::{DEFAULT_LIMIT, Exchanges, MAX_LIMIT};
use lapwing_metrics::{Order, Window};
use lapwing_outbound::DownstreamView;
use lapwing_shadow::recording::RecordOptions;

/// One path.
pub(crate) struct Endpoint {
    pub(crate) path: &'static str,
    /// Whether it is asked by POST; all others by GET, and HEAD.
    pub(crate) is_post: bool,
    /// Whether it asks for the admin token, where there is one for everything.
    pub(crate) is_guarded: bool,
    /// What it shows, in a line.
    pub(crate) shows: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// Its answers beyond those that a query, a token or a full queue makes.
    pub(crate) answers: &'static [Answer],
    pub(crate) handler: fn() -> MethodRouter<Admin>,
}

/// A field of a query, which may be left out.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) schema: SchemaOf,
}

/// An answer with its status and, by content type, its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) content: &'static [(&'static str, SchemaOf)],
}

/// Makes the schema of a value.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

const fn ok(about: &'static str, content: &'static [(&'static str, SchemaOf)]) -> Answer {
    Answer { status: 200, about, content }
}

const fn no(status: u16, about: &'static str) -> Answer {
    Answer { status, about, content: PLAIN }
}

const PLAIN: &[(&str, SchemaOf)] = &[(TEXT, any_text)];
/// A figure's names choose series.
const ROUTE: Parameter = Parameter { name: "route", about: "only this route, by its name in `series`", schema: any_text };
const MODEL: Parameter = Parameter { name: "model", about: "only this model; empty: traffic without a model", schema: any_text };
const FORMAT: Parameter =
    Parameter { name: "format", about: "the form of the answer, whatever `Accept` says", schema: |_| diagnosis_format() };
const WINDOW: Parameter = Parameter { name: "window", about: "the window of the figures", schema: |_| window(Window::default()) };

/// Refused by every path that makes its answer on demand.
pub(crate) const ON_DEMAND_REFUSALS: &[Answer] =
    &[no(500, "the answer could not be made"), no(503, "other answers wait to be read; `Retry-After` says when to try again")];
/// Refused for a bad query.
pub(crate) const BAD_QUERY: Answer =
    no(400, "a field of the query is unknown, given twice or out of range; names field, value and reason");
/// Refused because the token is missing.
pub(crate) const NO_TOKEN: Answer = no(401, "the admin token is asked for, and was not shown");

/// The name of the schema of what `/config` answers.
pub(crate) const SHOWN_CONFIG: &str = "ShownConfig";

/// Every path but the files of the page.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/stats",
        is_post: false,
        is_guarded: true,
        shows: "where the time goes, per route, model and upstream (JSON); ?window=10s|1m|5m|all, default 1m; &route=…&model=… for some",
        parameters: &[WINDOW, ROUTE, MODEL],
        answers: &[ok("the figures of the window", &[(JSON, |schemas| schemas.subschema_for::<Stats>())])],
        handler: || get(handlers::stats),
    },
    Endpoint {
        path: "/stats/stream",
        is_post: false,
        is_guarded: true,
        shows: "the same each second (server-sent events), for the live page and `lapwing top`",
        parameters: &[WINDOW, ROUTE, MODEL],
        answers: &[ok("an event each second, whose data is an answer of /stats", &[("text/event-stream", any_text)])],
        handler: || get(page::stream),
    },
    Endpoint {
        path: "/exchanges",
        is_post: false,
        is_guarded: true,
        shows: "waterfalls of single requests (JSON); ?order=recent|slowest, default recent; &limit=N, default 20; &route=…&model=…&trace_id=… for some",
        parameters: &[
            Parameter { name: "order", about: "the latest first, or the slowest of the last ten minutes", schema: |_| order() },
            Parameter { name: "limit", about: "how many at most", schema: |_| limit() },
            ROUTE,
            MODEL,
            Parameter {
                name: "trace_id",
                about: "only this trace; not all zero",
                schema: |_| json_schema!({"type": "string", "pattern": "^(?!0{32}$)[0-9a-f]{32}$"}),
            },
        ],
        answers: &[ok("the requests", &[(JSON, |schemas| schemas.subschema_for::<Exchanges>())])],
        handler: || get(handlers::exchanges),
    },
    Endpoint {
        path: "/metrics",
        is_post: false,
        is_guarded: true,
        shows: "for Prometheus, by Accept (OpenMetrics text; Prometheus text; protobuf with native histograms)",
        parameters: &[],
        answers: &[ok(
            "every metric of docs/METRICS.md",
            &[
                (ExpositionFormat::OpenMetrics.content_type(), any_text),
                (ExpositionFormat::Plain.content_type(), any_text),
                (ExpositionFormat::Protobuf.content_type(), any_bytes),
            ],
        )],
        handler: || get(handlers::metrics),
    },
    Endpoint {
        path: "/hdr",
        is_post: false,
        is_guarded: true,
        shows: "every histogram in full (HdrHistogram V2 interval log); ?window=10s|1m|5m|all, default all",
        parameters: &[Parameter { name: "window", about: "the window of the histograms", schema: |_| window(Window::All) }],
        answers: &[ok("an interval log", PLAIN)],
        handler: || get(handlers::hdr),
    },
    Endpoint {
        path: "/diagnosis",
        is_post: false,
        is_guarded: true,
        shows: "which stage is to blame for a route's latency, how sure that is, and what to do first (text; JSON by Accept: application/json or ?format=json); ?window=10s|1m|5m; &route=…&model=… for some",
        parameters: &[
            Parameter {
                name: "window",
                about: "the time that is diagnosed; without it, `diagnosis.window`",
                schema: |_| diagnosis_window(),
            },
            ROUTE,
            MODEL,
            FORMAT,
        ],
        answers: &[
            ok(
                "sentences, or every figure of the routes, the one that lost most time first",
                &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<Diagnosis>())],
            ),
            no(404, "nothing is diagnosed: `diagnosis.enabled` is off"),
        ],
        handler: || get(handlers::diagnosis),
    },
    Endpoint {
        path: "/shadow",
        is_post: false,
        is_guarded: true,
        shows: "what copies of requests say of the shadow targets: faster, slower, the same (text; JSON by Accept: application/json)",
        parameters: &[],
        answers: &[
            ok("sentences, or every figure", &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<ShadowView>())]),
            NO_TOKEN,
        ],
        handler: || get(handlers::shadow_report),
    },
    Endpoint {
        path: "/split",
        is_post: false,
        is_guarded: true,
        shows: "what requests say of the candidate of a live split, its share, and why that rises, waits or fell to nothing (text; JSON by Accept: application/json or ?format=json)",
        parameters: &[FORMAT],
        answers: &[
            ok(
                "sentences, or every figure; null where nothing is split",
                &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<Option<SplitView>>())],
            ),
            NO_TOKEN,
        ],
        handler: || get(handlers::split),
    },
    Endpoint {
        path: "/trials",
        is_post: false,
        is_guarded: true,
        shows: "what blocks of time show of a lever that is on and off in turn: what cannot be judged, its effects, why it was stopped (text; JSON by Accept: application/json or ?format=json)",
        parameters: &[FORMAT],
        answers: &[
            ok(
                "sentences, or every figure; null where nothing is tried",
                &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<Option<TrialView>>())],
            ),
            NO_TOKEN,
        ],
        handler: || get(handlers::trials),
    },
    Endpoint {
        path: "/dispatch",
        is_post: false,
        is_guarded: true,
        shows: "the queue in front of the upstreams: what waits, what requests take, and what the queue would bring (text; JSON by Accept: application/json or ?format=json)",
        parameters: &[FORMAT],
        answers: &[
            ok(
                "sentences, or every figure; null where dispatch is off",
                &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<Option<DispatchView>>())],
            ),
            NO_TOKEN,
        ],
        handler: || get(handlers::dispatch),
    },
    Endpoint {
        path: "/cache",
        is_post: false,
        is_guarded: true,
        shows: "what is answered without asking the upstream, what stays out and why, and what a cache would bring (text; JSON by Accept: application/json or ?format=json)",
        parameters: &[FORMAT],
        answers: &[
            ok(
                "sentences, or every figure; null where the cache is off",
                &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<Option<CacheView>>())],
            ),
            NO_TOKEN,
        ],
        handler: || get(handlers::cache),
    },
    Endpoint {
        path: "/cache/purge",
        is_post: true,
        is_guarded: true,
        shows: "POST: forgets all answers, and what was shown of who gives the same answer; from this machine or with the admin token",
        parameters: &[],
        answers: &[
            ok("what was forgotten", &[(JSON, |schemas| schemas.subschema_for::<CachePurge>())]),
            NO_TOKEN,
            no(403, "neither from this machine nor with the admin token"),
            no(404, "there is no cache"),
        ],
        handler: || post(cache::purge),
    },
    Endpoint {
        path: "/downstreams",
        is_post: false,
        is_guarded: true,
        shows: "the stores that the model server calls through Lapwing: calls, keys, hits, and whose time they were (text; JSON by Accept: application/json or ?format=json)",
        parameters: &[FORMAT],
        answers: &[
            ok(
                "sentences, or every figure since the start; an empty list without `downstreams`",
                &[(TEXT, any_text), (JSON, |schemas| schemas.subschema_for::<Vec<DownstreamView>>())],
            ),
            NO_TOKEN,
        ],
        handler: || get(handlers::downstreams),
    },
    Endpoint {
        path: "/record",
        is_post: true,
        is_guarded: true,
        shows: "POST: streams sampled requests to a process on this machine or with the admin token, for `lapwing record` (JSON lines)",
        parameters: &[
            Parameter { name: "sample", about: "the share of requests, as 1% or 0.01; default 1%", schema: any_text },
            Parameter { name: "for", about: "how long, as 90s or 10m; at most 24h; default 10m", schema: any_text },
            Parameter {
                name: "max_requests",
                about: "how many requests at most",
                schema: |_| json_schema!({"type": "integer", "format": "uint64", "minimum": 0, "default": RecordOptions::default().max_requests}),
            },
            Parameter { name: "max_size", about: "about how many bytes at most, as 512MiB; default 1GiB", schema: any_text },
        ],
        answers: &[
            ok("the recording (docs/RECORDING.md), a line for each request as it ends", &[(record::LINES, any_text)]),
            NO_TOKEN,
            no(403, "neither from this machine nor with the admin token"),
            no(409, "another recording runs"),
        ],
        handler: || post(record::record),
    },
    Endpoint {
        path: "/leave",
        is_post: true,
        is_guarded: true,
        shows: "POST: clients are to go elsewhere: each connection ends with its next answer, and /readyz fails; from this machine or with the admin token",
        parameters: &[],
        answers: &[ok("it leaves", PLAIN), NO_TOKEN, no(403, "neither from this machine nor with the admin token")],
        handler: || post(leave::leave),
    },
    Endpoint {
        path: "/config",
        is_post: false,
        is_guarded: true,
        shows: "the effective configuration, secrets masked (JSON)",
        parameters: &[],
        answers: &[ok("the settings of docs/CONFIGURATION.md", &[(JSON, shown_config)])],
        handler: || get(handlers::config),
    },
    Endpoint {
        path: "/openapi.json",
        is_post: false,
        is_guarded: true,
        shows: "these paths, their queries and answers (OpenAPI 3.1)",
        parameters: &[],
        answers: &[ok(
            "this document",
            &[(JSON, |_| json_schema!({"type": "object", "required": ["openapi", "info", "paths"]}))],
        )],
        handler: || get(handlers::openapi),
    },
    Endpoint {
        path: "/livez",
        is_post: false,
        is_guarded: false,
        shows: "200 while the process runs",
        parameters: &[],
        answers: &[ok("it runs", PLAIN)],
        handler: || get(handlers::livez),
    },
    Endpoint {
        path: "/readyz",
        is_post: false,
        is_guarded: false,
        shows: "200 while the upstream accepts connections, the engine's models are ready and lapwing is not shutting down, else 503 and why",
        parameters: &[],
        answers: &[ok("ready", PLAIN), no(503, "not ready, and why")],
        handler: || get(handlers::readyz),
    },
    Endpoint {
        path: "/",
        is_post: false,
        is_guarded: false,
        shows: "this list; for browsers a live page",
        parameters: &[],
        answers: &[ok("the list of paths, or the live page", &[(TEXT, any_text), (page::HTML, any_text)])],
        handler: || get(async |head: HeaderMap| page::root(&head, list())),
    },
];

/// Every path and what it shows, a line each.
pub(crate) fn list() -> String {
    ENDPOINTS.iter().map(|Endpoint { path, shows, .. }| format!("{path:<15}{shows}\n")).collect()
}

pub(crate) fn any_text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

/// Of binary data there is no schema.
fn any_bytes(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

fn window(default: Window) -> Schema {
    json_schema!({"type": "string", "enum": Window::ALL.map(Window::name), "default": default.name()})
}

fn diagnosis_window() -> Schema {
    json_schema!({"type": "string", "enum": DiagnosisWindow::ALL.map(DiagnosisWindow::name)})
}

fn diagnosis_format() -> Schema {
    json_schema!({"type": "string", "enum": query::DiagnosisFormat::ALL.map(query::DiagnosisFormat::name)})
}

fn order() -> Schema {
    json_schema!({"type": "string", "enum": Order::ALL.map(Order::name), "default": Order::default().name()})
}

fn limit() -> Schema {
    json_schema!({"type": "integer", "minimum": 0, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT})
}

/// The configuration's own module says what it is.
fn shown_config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"$ref": format!("#/components/schemas/{SHOWN_CONFIG}")})
}
