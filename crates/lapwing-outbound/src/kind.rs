//! What is spoken to a downstream.

use http::Version;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is spoken to a downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DownstreamKind {
    /// The Redis protocol, RESP2 and RESP3.
    Redis,
    /// HTTP/1.1; of Feast's `POST /get-online-features`, entities and features are counted too.
    Http,
    /// gRPC, or anything else over HTTP/2; only its times are read.
    Grpc,
}

impl DownstreamKind {
    /// The version of HTTP that is spoken, if it is HTTP.
    pub(crate) const fn version(self) -> Option<Version> {
        match self {
            Self::Redis => None,
            Self::Http => Some(Version::HTTP_11),
            Self::Grpc => Some(Version::HTTP_2),
        }
    }
}
