//! What was learnt of the upstream from its responses: how its streams report usage, route by route.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use http::Request;

use lapwing_protocol::amend::{CompletionsRoute, UsageStyle};

/// Knows what was learnt of the upstream that a request goes to.
pub(crate) trait KnowsTraits {
    /// That of the upstream of `request`.
    fn traits<B>(&self, request: &Request<B>) -> &Arc<UpstreamTraits>;
}

/// What is known of the upstream. One per worker.
#[derive(Debug, Default)]
pub(crate) struct UpstreamTraits([AtomicU8; CompletionsRoute::COUNT]);

impl UpstreamTraits {
    /// How streams of `route` report usage; `None` until a stream was seen that had not been asked for usage.
    pub(crate) fn usage_style(&self, route: CompletionsRoute) -> Option<UsageStyle> {
        match self.0.get(route.index())?.load(Relaxed) {
            1 => Some(UsageStyle::Plain),
            2 => Some(UsageStyle::Marked),
            3 => Some(UsageStyle::Unasked),
            _ => None,
        }
    }

    /// Remembers how streams of `route` report usage.
    pub(crate) fn learn_usage_style(&self, route: CompletionsRoute, style: UsageStyle) {
        tracing::debug!(?route, ?style, "learnt how the upstream's streams report usage");
        if let Some(known) = self.0.get(route.index()) {
            known.store(style as u8 + 1, Relaxed);
        }
    }
}
