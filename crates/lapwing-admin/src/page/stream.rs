//! `/stats/stream`: `/stats` each second, as server-sent events (WHATWG HTML, 9.2). A snapshot is made when the last one was taken, so a
//! client that does not read costs one snapshot, until the connection's write timeout ends it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::answers::{Admin, refuse, text};
use crate::query;
use crate::stats;
use lapwing_metrics::views::Names;
use lapwing_metrics::{Counter, Window};

/// Streams at the same time; a page has two.
pub(crate) const STREAMS: usize = 16;
/// Between two snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// What replaces a snapshot that could not be made: a comment.
const SKIPPED: &[u8] = b": no snapshot could be made\n\n";

struct Stream {
    admin: Admin,
    window: Window,
    names: Names,
    ticks: Interval,
    _place: OwnedSemaphorePermit,
}

/// Answers `GET /stats/stream?window=…&route=…&model=…`.
pub(crate) async fn stream(State(admin): State<Admin>, uri: Uri) -> Response {
    let (window, names) = match query::stats(&uri) {
        Ok(asked) => asked,
        Err(error) => return refuse(&error),
    };
    let Ok(place) = admin.streams.clone().try_acquire_owned() else {
        admin.surfaces.counters.bump(Counter::ScrapesRefused);
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("{STREAMS} streams are open, which is the limit; close a page"));
    };
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Stream { admin, window, names, ticks, _place: place };
    let events = futures_util::stream::unfold(stream, async |mut stream| {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(event)), stream))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    ([(header::CONTENT_TYPE, kind)], Body::new(StreamBody::new(events))).into_response()
}

impl Stream {
    /// The next event; `None` when Lapwing shuts down.
    async fn next(&mut self) -> Option<Bytes> {
        let stop = self.admin.surfaces.draining.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            _ = self.ticks.tick() => {}
        }
        let (window, names) = (self.window, self.names.clone());
        let made = self.admin.made(move |surfaces| {
            let mut event = b"data: ".to_vec();
            serde_json::to_writer(&mut event, &stats::stats(surfaces, window, &names)).ok()?;
            event.extend_from_slice(b"\n\n");
            Some(event)
        });
        Some(made.await.flatten().map_or(Bytes::from_static(SKIPPED), Bytes::from))
    }
}
