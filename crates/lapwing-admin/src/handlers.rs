//! The handlers of the paths that read a surface and answer at once; those of the live page and of `/record` are with these.

use std::fmt::Display;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::access::may_read_payloads;
use super::answers::{Admin, JSON, TEXT, accepts, deny, json, refuse, text};
use super::surfaces::Surfaces;
use super::{cache, diagnosis, dispatch, hdr, health, prometheus, query, shadow, split, stats, trials};
use lapwing_ledger::Stamp;
use lapwing_metrics::exposition::ExpositionFormat;
use lapwing_metrics::views;
use lapwing_metrics::{Labels, Window};
use lapwing_net::Peer;
use lapwing_outbound::Downstreams;

pub(crate) async fn stats(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::stats(&uri) {
        Ok((window, names)) => admin.make(move |surfaces| json(&stats::stats(surfaces, window, &names))).await,
        Err(error) => refuse(&error),
    }
}

pub(crate) async fn exchanges(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::exchanges(&uri) {
        Ok(asked) => admin.make(move |surfaces| json(&views::exchanges(&surfaces.registry, &asked))).await,
        Err(error) => refuse(&error),
    }
}

/// Whether a report is given as JSON: by the query's `format`, else if `Accept` names it. Who types `curl` wants to read.
fn wants_json(format: Option<query::DiagnosisFormat>, head: &HeaderMap) -> bool {
    format.map_or_else(|| accepts(head, JSON), |format| format == query::DiagnosisFormat::Json)
}

/// In words, unless JSON is asked for by name.
pub(crate) async fn diagnosis(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let query::DiagnosisQuery { window, names, format } = match query::diagnosis(&uri) {
        Ok(asked) => asked,
        Err(error) => return refuse(&error),
    };
    let Some(surface) = admin.surfaces.diagnosis.clone() else {
        return text(StatusCode::NOT_FOUND, "nothing is diagnosed: diagnosis.enabled is off");
    };
    let wants_json = wants_json(format, &head);
    admin
        .make(move |surfaces| {
            let latest = surface.latest(window.unwrap_or(surface.window), Stamp::now());
            let queue = surfaces.dispatch.as_ref().and_then(|dispatch| dispatch::advice(dispatch));
            let levers = queue.into_iter().chain(cache::advice(surfaces)).collect();
            let chosen = diagnosis::chosen(&latest, &names, levers);
            if wants_json { json(&chosen) } else { Ok((TEXT, vec![(surface.words)(&chosen).into_bytes()])) }
        })
        .await
}

pub(crate) async fn metrics(State(admin): State<Admin>, head: HeaderMap) -> Response {
    let format = ExpositionFormat::accepted(&head);
    let made = move |surfaces: &Surfaces| prometheus::write(surfaces, format).map(|body| (format.content_type(), body));
    admin.make(move |surfaces| made(surfaces).map_err(|e| e.to_string())).await
}

/// Everyone may read what copies say; kept samples are payloads of users, and only shown to clients that may read these.
pub(crate) async fn shadow_report(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap) -> Response {
    let wants_json = accepts(&head, "application/json");
    let access = may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head);
    let payloads = match access {
        Err(denied) if denied.status == StatusCode::UNAUTHORIZED => return deny(denied),
        access => access.map_err(|denied| denied.reason),
    };
    admin
        .make(move |surfaces| match &surfaces.shadow {
            Some(shadow) if wants_json => json(&shadow::report(surfaces, shadow, payloads)),
            Some(shadow) => Ok((TEXT, vec![shadow::text(surfaces, shadow).into_bytes()])),
            None if wants_json => Ok((JSON, vec![b"{\"targets\":[]}".to_vec()])),
            None => Ok((TEXT, vec![b"there is no shadow target; --shadow URL adds one\n".to_vec()])),
        })
        .await
}

/// What a live split shows, in words unless JSON is asked for by name.
pub(crate) async fn split(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let wants_json = match query::format(&uri) {
        Ok(format) => wants_json(format, &head),
        Err(error) => return refuse(&error),
    };
    admin
        .make(move |surfaces| {
            let view = surfaces.split.as_ref().map(|split| split::view(split));
            let words = |view: &split::SplitView| view.to_string();
            let nothing = || "nothing is split: split.candidate names none of `upstreams`\n".to_owned();
            if wants_json { json(&view) } else { Ok((TEXT, vec![view.as_ref().map_or_else(nothing, words).into_bytes()])) }
        })
        .await
}

/// What a trial shows, in words unless JSON is asked for by name.
pub(crate) async fn trials(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let wants_json = match query::format(&uri) {
        Ok(format) => wants_json(format, &head),
        Err(error) => return refuse(&error),
    };
    admin
        .make(move |surfaces| {
            let view = surfaces.trials.as_ref().and_then(|trials| trials::view(trials));
            let Some((view, effects)) = view else {
                let nothing = b"nothing is tried: trial.lever is off\n".to_vec();
                return if wants_json { json(&None::<trials::TrialView>) } else { Ok((TEXT, vec![nothing])) };
            };
            if wants_json { json(&view) } else { Ok((TEXT, vec![trials::words(&view, &effects).into_bytes()])) }
        })
        .await
}

/// What is known of the queue in front of the upstreams, in words unless JSON is asked for by name.
pub(crate) async fn dispatch(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let nothing = "nothing waits, and nothing is learnt: dispatch.mode is off\n";
    in_words(&admin, (&uri, &head), nothing, |surfaces, labels| {
        surfaces.dispatch.as_ref().and_then(|dispatch| dispatch::view(dispatch, labels, &surfaces.counters))
    })
    .await
}

/// What is answered without asking the upstream, in words unless JSON is asked for by name.
pub(crate) async fn cache(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let nothing = "no answer is given twice, and nothing is counted: cache.mode is off\n";
    in_words(&admin, (&uri, &head), nothing, |surfaces, labels| {
        surfaces.cache.as_ref().and_then(|caching| cache::view(caching, labels))
    })
    .await
}

/// What `see` finds, as JSON if that is asked for by name, else in words: `nothing` where it finds none.
async fn in_words<V: Serialize + Display>(
    admin: &Admin,
    (uri, head): (&Uri, &HeaderMap),
    nothing: &'static str,
    see: impl FnOnce(&Surfaces, &Labels) -> Option<V> + Send + 'static,
) -> Response {
    let wants_json = match query::format(uri) {
        Ok(format) => wants_json(format, head),
        Err(error) => return refuse(&error),
    };
    admin
        .make(move |surfaces| {
            let labels = surfaces.registry.lock().labels().clone();
            let view = see(surfaces, &labels);
            let words = |view: &V| view.to_string();
            if wants_json {
                json(&view)
            } else {
                Ok((TEXT, vec![view.as_ref().map_or_else(|| nothing.to_owned(), words).into_bytes()]))
            }
        })
        .await
}

/// What the model server calls through Lapwing, in words unless JSON is asked for by name.
pub(crate) async fn downstreams(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let wants_json = match query::format(&uri) {
        Ok(format) => wants_json(format, &head),
        Err(error) => return refuse(&error),
    };
    admin
        .make(move |surfaces| {
            let views = surfaces.downstreams.as_ref().map(Downstreams::views).unwrap_or_default();
            if wants_json {
                return json(&views);
            }
            let words: String = views.iter().map(ToString::to_string).collect();
            let nothing = "the server calls nothing through Lapwing: downstreams is empty\n".to_owned();
            Ok((TEXT, vec![if words.is_empty() { nothing } else { words }.into_bytes()]))
        })
        .await
}

pub(crate) async fn hdr(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::window(&uri, Window::All) {
        Ok(window) => {
            let log = move |surfaces: &Surfaces| {
                let mut log = Vec::new();
                hdr::log(surfaces, window, &mut log).map(|()| (TEXT, vec![log]))
            };
            admin.make(log).await
        }
        Err(error) => refuse(&error),
    }
}

/// Answers `GET /openapi.json`.
pub(crate) async fn openapi(State(admin): State<Admin>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], admin.openapi()).into_response()
}

pub(crate) async fn config(State(admin): State<Admin>) -> Response {
    admin
        .make(|surfaces| {
            let mut body = serde_json::to_vec_pretty(&*surfaces.config.load()).map_err(|e| e.to_string())?;
            body.push(b'\n');
            Ok((JSON, vec![body]))
        })
        .await
}

pub(crate) async fn livez() -> Response {
    text(StatusCode::OK, "alive")
}

pub(crate) async fn readyz(State(admin): State<Admin>) -> Response {
    match health::readiness(&admin.surfaces).await {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}
