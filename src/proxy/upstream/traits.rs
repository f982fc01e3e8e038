//! What was learnt of the upstream from its responses: how its streams report usage, route by route.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::protocol::amend::{Habit, Route};

/// What is known of the upstream. One per worker.
#[derive(Debug, Default)]
pub(crate) struct UpstreamTraits([AtomicU8; Route::COUNT]);

impl UpstreamTraits {
    /// How streams of `route` report usage; `None` until a stream was seen that had not been asked for usage.
    pub(crate) fn usage_style(&self, route: Route) -> Option<Habit> {
        match self.0.get(route.index())?.load(Relaxed) {
            1 => Some(Habit::Plain),
            2 => Some(Habit::Marked),
            3 => Some(Habit::Unasked),
            _ => None,
        }
    }

    /// Remembers how streams of `route` report usage.
    pub(crate) fn learn_usage_style(&self, route: Route, style: Habit) {
        tracing::debug!(?route, ?style, "learnt how the upstream's streams report usage");
        if let Some(known) = self.0.get(route.index()) {
            known.store(style as u8 + 1, Relaxed);
        }
    }
}
