//! What limits a route, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a route's latency is bound by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatencyBound {
    /// The model itself.
    Compute,
    /// Features that are looked up before the model runs.
    Feature,
    /// Waiting for a slot, a batch or a thread.
    Queue,
    /// Bytes on their way, of a request or its answer.
    Network,
    /// What is done with the request before the model runs.
    Preprocessing,
    /// What is done with the model's outputs.
    Postprocessing,
    /// Other services that the handler calls.
    Downstream,
    /// Lapwing itself.
    Proxy,
    /// The whole server stands still now and then, whatever it is at.
    Pauses,
    /// The whole server is slow after a start or idle time, whatever it is at.
    ColdStart,
}

impl LatencyBound {
    /// All bounds, in the order of their places.
    pub const ALL: [Self; 10] = [
        Self::Compute,
        Self::Feature,
        Self::Queue,
        Self::Network,
        Self::Preprocessing,
        Self::Postprocessing,
        Self::Downstream,
        Self::Proxy,
        Self::Pauses,
        Self::ColdStart,
    ];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Feature => "feature",
            Self::Queue => "queue",
            Self::Network => "network",
            Self::Preprocessing => "preprocessing",
            Self::Postprocessing => "postprocessing",
            Self::Downstream => "downstream",
            Self::Proxy => "proxy",
            Self::Pauses => "pauses",
            Self::ColdStart => "cold_start",
        }
    }
}

impl LatencyBound {
    /// `queue-bound (bursts)`; the bound alone, where the cause is not known or has the same name.
    #[must_use]
    pub fn words(self, cause: Cause) -> String {
        let bound = self.name().replace('_', "-");
        if cause == Cause::Unknown || cause.name() == self.name() {
            return format!("{bound}-bound");
        }
        format!("{bound}-bound ({})", cause.name().replace('_', " "))
    }
}

/// Why a bound holds, where the evidence says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The feature cache misses more than it did.
    ColdCache,
    /// The feature store answers slowly.
    SlowStore,
    /// The server stops now and then, whatever the load: collection of garbage, throttling, a lock.
    Pauses,
    /// Requests come in bursts.
    Bursts,
    /// More arrives than the server can do.
    Saturated,
    /// Some requests ask for much more work than others.
    LongInputs,
    /// The client reads or writes slowly.
    SlowClient,
    /// Each round trip to the client takes long.
    FarRegion,
    /// The first requests after a start, or after idle time, take longer.
    ColdStart,
    /// Bodies are large for what is asked.
    OversizedBodies,
    /// Work on the outputs takes long.
    HeavyPostprocessing,
    /// The server writes head and body apart and waits for an acknowledgement.
    SplitWrites,
    /// Connections are made for few requests each.
    Reconnects,
    /// The model takes long for each unit of work.
    SlowModel,
    /// None of these; the bound alone is known.
    Unknown,
}

impl Cause {
    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ColdCache => "cold_cache",
            Self::SlowStore => "slow_store",
            Self::Pauses => "pauses",
            Self::Bursts => "bursts",
            Self::Saturated => "saturated",
            Self::LongInputs => "long_inputs",
            Self::SlowClient => "slow_client",
            Self::FarRegion => "far_region",
            Self::ColdStart => "cold_start",
            Self::OversizedBodies => "oversized_bodies",
            Self::HeavyPostprocessing => "heavy_postprocessing",
            Self::SplitWrites => "split_writes",
            Self::Reconnects => "reconnects",
            Self::SlowModel => "slow_model",
            Self::Unknown => "unknown",
        }
    }
}
