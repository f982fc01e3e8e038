//! The time that one request may take in all, in nanoseconds from its first byte, and who says so. It judges nothing.

use schemars::JsonSchema;
use serde::Serialize;

/// Who says how long a request may take, the most specific first: of several, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineSource {
    /// The request's `grpc-timeout`.
    GrpcTimeout,
    /// The request's field that the setting `proxy.deadline_header` names.
    Header,
    /// The request's parameter `timeout`, by the Open Inference Protocol.
    Parameter,
    /// The settings, for its model.
    Model,
    /// The settings, for its route.
    Route,
}

impl DeadlineSource {
    /// Every source, the most specific first.
    pub const ALL: [Self; 5] = [Self::GrpcTimeout, Self::Header, Self::Parameter, Self::Model, Self::Route];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GrpcTimeout => "grpc_timeout",
            Self::Header => "header",
            Self::Parameter => "parameter",
            Self::Model => "model",
            Self::Route => "route",
        }
    }
}

/// How long a request may take in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// From its first byte, in nanoseconds.
    pub budget_ns: u64,
    /// Who says so.
    pub source: DeadlineSource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_listed_in_their_order_by_their_names() {
        assert!(DeadlineSource::ALL.is_sorted());
        assert!(DeadlineSource::ALL.into_iter().all(|source| serde_json::json!(source) == source.name()));
    }
}
