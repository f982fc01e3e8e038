//! Uploads that come too slowly: what `client_min_rate` asks of a request's body, and which upload gives way when requests fill their
//! places.
//!
//! An upload is known here from the first time that its body waits for the client, so a body that comes at once costs nothing, and with
//! `client_min_rate` off nothing does. It is left alone once the upstream has begun to answer: no other answer can be given then.

mod pace;
mod places;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;

use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::exchange::InFlight;
use lapwing_ledger::Stamp;
use lapwing_metrics::Counter;
use lapwing_settings::{Size, Switch};

pub(crate) use pace::UploadPace;
pub(crate) use places::UploadPlaces;

/// Where another task reads the body, as for an HTTP/2 upstream, nothing says that it begins to wait: it is looked at so often.
const LOOK: Duration = Duration::from_millis(250);

/// An upload that has waited for its client.
#[derive(Debug)]
pub(crate) struct Upload {
    pace: UploadPace,
    rate: Size,
    gives_way: AtomicBool,
    task: AtomicWaker,
    places: Arc<UploadPlaces>,
}

impl Upload {
    /// The upload is over, or has an answer: it is told nothing any more.
    pub(crate) fn settle(&self) {
        self.places.remove(self);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if *self.gives_way.get_mut() {
            self.places.on_left();
        }
    }
}

/// A request body as an upload: it tells when it waits for the client and when bytes come.
#[derive(Debug)]
pub(crate) enum UploadWatch {
    /// Nobody asks, or the body is complete.
    Off,
    /// It has not waited yet.
    Unseen(Size),
    /// It has waited.
    Seen(Arc<Upload>),
}

impl UploadWatch {
    pub(crate) fn new(rate: Switch<Size>) -> Self {
        rate.on().map_or(Self::Off, |rate| Self::Unseen(*rate))
    }

    /// The body waits for the client.
    pub(crate) fn on_wait(&mut self, in_flight: &InFlight) {
        if let Self::Unseen(rate) = *self {
            let places = in_flight.context.uploads.clone();
            let (pace, gives_way) = (UploadPace::new(rate.get()), AtomicBool::new(false));
            let upload = Arc::new(Upload { pace, rate, gives_way, task: AtomicWaker::new(), places });
            upload.places.insert(&upload);
            drop(in_flight.upload.set(upload.clone())); // there is one body
            *self = Self::Seen(upload);
        }
        if let Self::Seen(upload) = self {
            upload.pace.on_wait(Stamp::now());
        }
    }

    /// `n` bytes came, as [`InFlight::on_request_bytes`] has noted.
    pub(crate) fn on_bytes(&self, n: usize, in_flight: &InFlight) {
        if let Self::Seen(upload) = self {
            upload.pace.on_bytes(n as u64, in_flight.request_last());
        }
    }
}

impl Drop for UploadWatch {
    fn drop(&mut self) {
        if let Self::Seen(upload) = self {
            upload.settle();
        }
    }
}

/// Returns why the upload of `in_flight` ends now, if it comes too slowly. If it does not, the task is woken when it may.
pub(crate) fn slow_upload(in_flight: &InFlight, cx: &mut Context<'_>, deadline: &mut LazyDeadline) -> Option<Error> {
    let config = &in_flight.context.config;
    if !config.client_min_rate.is_on() || in_flight.request_end().is_some() {
        return None;
    }
    let Some(upload) = in_flight.upload.get() else {
        deadline.wake_within(cx, LOOK);
        return None;
    };
    upload.task.register(cx.waker());
    let (rate, counters) = (upload.rate, &in_flight.context.counters);
    if upload.gives_way.load(Relaxed) {
        counters.bump(Counter::SlowUploadsShed);
        return Some(Error::ShedSlow { rate, limit: config.max_in_flight });
    }
    let Some((since, left)) = upload.pace.patience() else {
        deadline.wake_within(cx, LOOK);
        return None;
    };
    if !deadline.has_expired(cx, since, left) {
        return None;
    }
    counters.bump(Counter::SlowUploadsRefused);
    Some(Error::RequestSlow { rate })
}
