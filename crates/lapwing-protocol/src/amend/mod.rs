//! Changes requests so that the server reports more, and removes the effect from the response that the client sees. These are
//! pure functions on bytes, which say what to insert and what to cut. Nothing is serialised again, and unusual bodies are left
//! unchanged.

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod amend_properties;
mod events;
mod meta_info;
mod object;
mod request;
#[cfg(test)]
mod samples;
mod usage;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use events::{EventStreamError, MAX_EVENT_BYTES, UsageRemover, UsageStyleDetector};
pub use meta_info::without_meta_info;
pub use request::{AddedOption, RequestEdit, amend_request};
pub use usage::UsageStyle;

/// The section `proxy.amend`: the options that Lapwing may add to a client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct AmendOptions {
    /// Ask for token usage in streamed completions (`stream_options.include_usage`). vLLM needs it for its timings, others for
    /// token counts; llama.cpp does not.
    pub include_usage: bool,
    /// Ask `SGLang` for its timings (`return_meta_info`) in completions that are not streamed. Other servers may refuse the field.
    pub return_meta_info: bool,
}

impl AmendOptions {
    /// Whether any option may be added.
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
    /// How many routes there are.
    pub const COUNT: usize = 2;

    /// The route of `path` (without query), below any prefix; `None` for all other paths.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        if path.ends_with("/v1/chat/completions") {
            Some(Self::Chat)
        } else {
            path.ends_with("/v1/completions").then_some(Self::Text)
        }
    }

    /// The index in an array of routes, `0..CompletionsRoute::COUNT`.
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
