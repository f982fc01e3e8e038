//! What a replay is asked for.

use std::path::PathBuf;

use super::schedule::Pace;
use crate::gates::Gate;
use crate::settings::ShadowSettings;
use lapwing_settings::Bind;

/// What a replay is asked for. How long a target may take, and how many requests each has in flight, are `shadow.timeout` and
/// `shadow.concurrency` of its sections.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The recording, as the report names it.
    pub file: String,
    /// How fast requests are sent.
    pub pace: Pace,
    /// What must hold.
    pub gates: Vec<Gate>,
    /// The file that every pair is written to, which must not exist.
    pub pairs: Option<PathBuf>,
    /// The address that receives the targets' spans over gRPC.
    pub otlp_grpc: Option<Bind>,
    /// The same over HTTP.
    pub otlp_http: Option<Bind>,
    /// The sections of the configuration.
    pub sections: ShadowSettings,
}
