//! `POST /record`: streams sampled requests to the client that asks, as long as it reads. Nothing is written to disk here.
//!
//! Only a process on this machine may ask, or one with the admin token (`access`).

use std::convert::Infallible;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::poll_fn;
use http_body::Frame;
use http_body_util::StreamBody;

use super::access::may_read_payloads;
use super::answers::{Admin, deny, refuse, text};
use super::query;
use lapwing_metrics::views::QueryError;
use lapwing_net::Peer;
use lapwing_settings::Period;
use lapwing_shadow::recording::RecordOptions;

/// The content type of a recording.
pub(crate) const LINES: &str = "application/x-ndjson";

/// The longest recording.
const MAX_DURATION: Period = Period::from_secs(24 * 3600);

/// Answers `POST /record`.
pub(crate) async fn record(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap, uri: Uri) -> Response {
    if let Err(denied) = may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head) {
        return deny(denied);
    }
    let options = match options(&uri) {
        Ok(options) => options,
        Err(error) => return refuse(&error),
    };
    match (admin.surfaces.record)(options) {
        Ok(mut lines) => {
            let frames =
                poll_fn(move |cx| lines.poll_recv(cx).map(|line| line.map(|line| Ok::<_, Infallible>(Frame::data(line)))));
            ([(header::CONTENT_TYPE, LINES)], Body::new(StreamBody::new(frames))).into_response()
        }
        Err(reason) => text(StatusCode::CONFLICT, reason),
    }
}

/// What a query asks for.
pub(crate) fn options(uri: &Uri) -> Result<RecordOptions, QueryError> {
    let [sample, duration, max_requests, max_size] = query::fields(uri, ["sample", "for", "max_requests", "max_size"])?;
    let default = RecordOptions::default();
    let options = RecordOptions {
        sample: parsed("sample", sample, default.sample)?,
        duration: parsed("for", duration, default.duration)?,
        max_requests: parsed("max_requests", max_requests, default.max_requests)?,
        max_size: parsed("max_size", max_size, default.max_size)?,
    };
    if options.duration > MAX_DURATION {
        let (value, reason) = (options.duration.to_string(), "must be at most 24h".to_owned());
        return Err(QueryError::Invalid { field: "for", value, reason });
    }
    Ok(options)
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(field: &'static str, value: Option<String>, default: T) -> Result<T, QueryError> {
    let Some(value) = value else { return Ok(default) };
    value.parse().map_err(|error: T::Err| QueryError::Invalid { field, value, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_settings::Size;

    #[test]
    fn the_query_says_what_and_for_how_long() {
        let read = |query: &str| options(&format!("/record{query}").parse().unwrap());
        assert_eq!(read(""), Ok(RecordOptions::default()));
        let wanted = RecordOptions {
            sample: "50%".parse().unwrap(),
            duration: Period::from_secs(90),
            max_requests: 7,
            max_size: Size::mib(2),
        };
        assert_eq!(read("?sample=50%25&for=1m30s&max_requests=7&max_size=2MiB"), Ok(wanted));
        for (query, reason) in [
            ("?sample=7", "sample=\"7\""),
            ("?for=25h", "at most 24h"),
            ("?for=ten", "for=\"ten\""),
            ("?max_requests=-1", "max_requests=\"-1\""),
            ("?rate=5", "no such field"),
        ] {
            let error = read(query).unwrap_err().to_string();
            assert!(error.contains(reason), "{query}: {error}");
        }
    }
}
