//! Requests changed so that the server tells more, and the change undone in what the client sees. Pure functions on
//! bytes: what to insert, what to cut. Nothing is serialised anew; what is unusual is left alone.

mod events;
mod meta_info;
mod object;
mod request;
#[cfg(test)]
mod samples;
mod usage;

use serde::{Deserialize, Serialize};

pub use events::{EventStreamError, MAX_EVENT_BYTES, UsageRemover, UsageStyleDetector};
pub use meta_info::without_meta_info;
pub use request::{AddedOption, RequestEdit, amend_request};
pub use usage::UsageStyle;

/// The section `proxy.amend`: what may be asked for in the client's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, expecting = "a section of keys")]
pub struct AmendOptions {
    /// Ask for token usage in streamed completions (`stream_options.include_usage`). Default `false`.
    pub include_usage: bool,
    /// Ask `SGLang` for its timings in completions that are not streamed (`return_meta_info`). Default `false`.
    pub return_meta_info: bool,
}

impl AmendOptions {
    /// Whether anything may be asked for.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.include_usage || self.return_meta_info
    }
}

/// A route whose requests may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionsRoute {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

impl CompletionsRoute {
    /// Every route.
    pub const COUNT: usize = 2;

    /// The route of `path` (no query), which may stand behind any prefix; `None` for all others.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        if path.ends_with("/v1/chat/completions") {
            Some(Self::Chat)
        } else {
            path.ends_with("/v1/completions").then_some(Self::Text)
        }
    }

    /// The place in an array of routes, `0..CompletionsRoute::COUNT`.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_told_behind_any_prefix() {
        for (path, route) in [
            ("/v1/chat/completions", Some(CompletionsRoute::Chat)),
            ("/tenant/a/v1/chat/completions", Some(CompletionsRoute::Chat)),
            ("/v1/completions", Some(CompletionsRoute::Text)),
            ("/p/v1/completions", Some(CompletionsRoute::Text)),
            ("/v1/completions/", None),
            ("/v1/embeddings", None),
            ("/xv1/completions", None),
            ("/v1/chat/completions/x", None),
        ] {
            assert_eq!(CompletionsRoute::of(path), route, "{path}");
        }
    }
}
