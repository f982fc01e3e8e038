//! What shadow-serving, recordings and replays are set by: their own section, and what they need of others. The command makes it of the
//! whole configuration.

use super::config::Config;
use lapwing_settings::{TraceContexts, Upstream};

/// The settings of shadow-serving, recordings and replays.
#[derive(Clone, Debug)]
pub struct ShadowSettings {
    /// Their own.
    pub shadow: Config,
    /// The model server, whose answers copies are compared with.
    pub upstream: Upstream,
    /// The data plane: what copies to a target share with clients' requests.
    pub proxy: lapwing_proxy::Config,
    /// How bodies are read.
    pub protocol: lapwing_protocol::Config,
    /// How the targets' reports become stages, and how long spans are waited for.
    pub attribution: lapwing_attribution::Config,
    /// How much is remembered of copies.
    pub metrics: lapwing_metrics::Config,
    /// Which trace contexts a target gets beside `traceparent`.
    pub trace_contexts: TraceContexts,
}
