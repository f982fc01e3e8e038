//! A request's body as an upload that `client_min_rate` is asked of: it notes when it waits for the client and when bytes come, and ends when
//! they come too slowly.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::in_flight::RequestAccount;
use crate::upload::{Upload, UploadPlaces};
use lapwing_ledger::Stamp;
use lapwing_metrics::Counter;
use lapwing_settings::{Size, Switch};

/// Where another task reads the body, as for an HTTP/2 upstream, nothing says that it begins to wait: it is looked at so often.
const UNSEEN_INTERVAL: Duration = Duration::from_millis(250);

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

    /// The body waits for the client. The first time, it takes a place among `places`.
    pub(crate) fn on_wait(&mut self, account: &RequestAccount, places: &Arc<UploadPlaces>) {
        if let Self::Unseen(rate) = *self {
            let upload = Upload::begin(rate, places.clone());
            account.upload.set_upload(upload.clone());
            *self = Self::Seen(upload);
        }
        if let Self::Seen(upload) = self {
            upload.pace.on_wait(Stamp::now());
        }
    }

    /// `n` bytes came, as the stamps of `account` have noted.
    pub(crate) fn on_bytes(&self, n: usize, account: &RequestAccount) {
        if let Self::Seen(upload) = self {
            upload.pace.on_bytes(n as u64, account.stamps.request_last());
        }
    }
}

impl Drop for UploadWatch {
    fn drop(&mut self) {
        if let Self::Seen(upload) = self {
            upload.leave_places();
        }
    }
}

/// Returns why the upload of the request of `account` ends now, if it comes too slowly. If it does not, the task is woken when it may.
pub(crate) fn slow_upload(account: &RequestAccount, cx: &mut Context<'_>, deadline: &mut LazyDeadline) -> Option<Error> {
    let config = &account.context.config;
    if !config.client_min_rate.is_on() || account.stamps.request_end().is_some() {
        return None;
    }
    let Some(upload) = account.upload.upload() else {
        deadline.wake_within(cx, UNSEEN_INTERVAL);
        return None;
    };
    let (rate, counters) = (upload.rate(), &account.context.counters);
    if upload.gives_way(cx) {
        counters.bump(Counter::SlowUploadsShed);
        return Some(Error::ShedSlow { rate, limit: config.max_in_flight });
    }
    let Some((since, left)) = upload.pace.patience() else {
        deadline.wake_within(cx, UNSEEN_INTERVAL);
        return None;
    };
    if !deadline.has_expired(cx, since, left) {
        return None;
    }
    counters.bump(Counter::SlowUploadsRefused);
    Some(Error::RequestSlow { rate })
}
