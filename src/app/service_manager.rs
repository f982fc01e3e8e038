//! What the service manager is told (sd_notify(3)): that Lapwing is ready, reloads, and stops. Without `NOTIFY_SOCKET` nothing is sent.

use std::io;

use sd_notify::NotifyState;

use lapwing_settings::Period;

/// What ends after the requests in flight: the engine, the forwarder and Lapwing's own telemetry, five seconds each.
const AFTER_DRAIN_S: u64 = 20;

/// Every port is bound, and requests are served.
pub(crate) fn ready(status: &str) {
    tell(Ok(vec![NotifyState::Ready, NotifyState::Status(status)]));
}

/// The configuration is loaded again; [`ready`] ends it.
pub(crate) fn reloading() {
    // by the time a manager tells whether this belongs to the reload that it asked for (`Type=notify-reload`)
    let now = NotifyState::monotonic_usec_now();
    tell(now.map(|now| vec![NotifyState::Reloading, now, NotifyState::Status("loading the configuration again")]));
}

/// No connection is taken any more, and requests in flight have `drain_timeout`: so long the manager waits, whatever its own limit is.
pub(crate) fn stopping(drain_timeout: Period) {
    let most_us = drain_timeout.get().as_secs().saturating_add(AFTER_DRAIN_S).saturating_mul(1_000_000);
    let most_us = u32::try_from(most_us).unwrap_or(u32::MAX);
    let status = format!("draining, for at most {drain_timeout}");
    tell(Ok(vec![NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(most_us), NotifyState::Status(&status)]));
}

fn tell(states: io::Result<Vec<NotifyState<'_>>>) {
    if let Err(error) = states.and_then(|states| sd_notify::notify(&states)) {
        tracing::warn!(%error, "the service manager (NOTIFY_SOCKET) could not be told");
    }
}
