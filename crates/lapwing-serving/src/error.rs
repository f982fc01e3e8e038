//! Why a request failed, and how each protocol reports it: an HTTP status, a gRPC code, an outcome in the metrics.

use http::StatusCode;
use tonic::Code;

use lapwing_model::service::CallError;
use lapwing_net::excerpt;

/// `Retry-After` of a request that met a full queue or found no room for its body, in seconds.
pub(crate) const RETRY_AFTER: &str = "1";

/// The longest error message, in bytes: messages quote the request.
pub(crate) const MAX_MESSAGE: usize = 1024;

/// A bound that a request exceeded: the label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    MaxBody,
    BodyBudget,
    Expansion,
    Tensors,
    Axes,
    Parameters,
    Id,
    InFlight,
}

impl Bound {
    pub(crate) const ALL: [Self; 8] =
        [Self::MaxBody, Self::BodyBudget, Self::Expansion, Self::Tensors, Self::Axes, Self::Parameters, Self::Id, Self::InFlight];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MaxBody => "max_body",
            Self::BodyBudget => "body_budget",
            Self::Expansion => "expansion",
            Self::Tensors => "tensors",
            Self::Axes => "axes",
            Self::Parameters => "parameters",
            Self::Id => "id",
            Self::InFlight => "in_flight",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// The request is invalid.
    Input,
    Full,
    Deadline,
    NotReady,
    Failed,
    /// The client disconnected.
    Cancelled,
}

impl Outcome {
    pub(crate) const ALL: [Self; 7] =
        [Self::Ok, Self::Input, Self::Full, Self::Deadline, Self::NotReady, Self::Failed, Self::Cancelled];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Input => "input",
            Self::Full => "full",
            Self::Deadline => "deadline",
            Self::NotReady => "not_ready",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The request is invalid: the field, its value and the reason.
    #[error("{0}")]
    Input(String),
    /// The model, version or path does not exist: the requested name, and the existing ones.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Method(String),
    #[error("the body is larger than {limit} bytes, which is the limit")]
    TooLarge { limit: usize },
    /// There is more of something than a request may have.
    #[error("{field}: {count} is above the bound, which is {most}")]
    Bound { bound: Bound, field: String, count: usize, most: usize },
    #[error(
        "a body of {received} bytes becomes more than {most} bytes when it is decoded, which is the bound; send it uncompressed, or in parts"
    )]
    Expansion { received: usize, most: usize },
    #[error("body_budget: the {limit} bytes for all bodies are in use; send the request again later")]
    NoRoom { limit: usize },
    #[error("content-encoding: {0:?} is not read here; gzip, deflate and identity are")]
    Encoding(String),
    #[error("the body did not come within {ms} ms")]
    Slow { ms: u128 },
    #[error("{limit} requests are in flight, which is the limit")]
    Busy { limit: usize },
    #[error("{0}")]
    Call(#[from] CallError),
    /// The deadline passed before an answer came.
    #[error("deadline: passed before the model answered")]
    Late,
    /// An output cannot be represented in the requested form.
    #[error("{0}")]
    Output(String),
}

impl RequestError {
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Input(_) | Self::Bound { .. } | Self::Call(CallError::Input { .. }) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } | Self::Expansion { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Slow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Busy { .. } | Self::Call(CallError::Full { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Self::Late | Self::Call(CallError::Deadline { .. }) => StatusCode::GATEWAY_TIMEOUT,
            Self::NoRoom { .. } | Self::Call(CallError::NotReady { .. } | CallError::Device { .. }) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Output(_) | Self::Call(CallError::Failed { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Input(_) | Self::Bound { .. } | Self::Call(CallError::Input { .. }) => Code::InvalidArgument,
            Self::Unknown(_) => Code::NotFound,
            Self::Method(_) | Self::Encoding(_) => Code::Unimplemented,
            Self::TooLarge { .. }
            | Self::Expansion { .. }
            | Self::NoRoom { .. }
            | Self::Busy { .. }
            | Self::Call(CallError::Full { .. }) => Code::ResourceExhausted,
            Self::Slow { .. } | Self::Late | Self::Call(CallError::Deadline { .. }) => Code::DeadlineExceeded,
            Self::Call(CallError::NotReady { .. } | CallError::Device { .. }) => Code::Unavailable,
            Self::Output(_) | Self::Call(CallError::Failed { .. }) => Code::Internal,
        }
    }

    pub(crate) const fn outcome(&self) -> Outcome {
        // a lost device does not come back, unlike a model that is not ready yet
        if matches!(self, Self::Call(CallError::Device { .. })) {
            return Outcome::Failed;
        }
        match self.code() {
            Code::ResourceExhausted if !matches!(self, Self::TooLarge { .. } | Self::Expansion { .. }) => Outcome::Full,
            Code::DeadlineExceeded if !matches!(self, Self::Slow { .. }) => Outcome::Deadline,
            Code::Unavailable => Outcome::NotReady,
            Code::Internal => Outcome::Failed,
            _ => Outcome::Input,
        }
    }

    /// The gRPC status.
    pub(crate) fn to_grpc(&self) -> tonic::Status {
        tonic::Status::new(self.code(), self.message())
    }

    /// What the client sees.
    pub(crate) fn message(&self) -> String {
        cut_message(self.to_string())
    }

    /// Whether the client may succeed with the same request a little later.
    pub(crate) const fn is_momentary(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::NoRoom { .. } | Self::Call(CallError::Full { .. }))
    }

    /// The bound that was exceeded, if that is the reason.
    pub(crate) const fn bound(&self) -> Option<Bound> {
        match self {
            Self::TooLarge { .. } => Some(Bound::MaxBody),
            Self::Expansion { .. } => Some(Bound::Expansion),
            Self::NoRoom { .. } => Some(Bound::BodyBudget),
            Self::Bound { bound, .. } => Some(*bound),
            Self::Busy { .. } => Some(Bound::InFlight),
            _ => None,
        }
    }
}

/// The text, cut to [`MAX_MESSAGE`] bytes.
pub(crate) fn cut_message(text: String) -> String {
    excerpt(text, MAX_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(cut_message("short".into()), "short");
        let long = cut_message("é".repeat(MAX_MESSAGE));
        assert!(long.len() <= MAX_MESSAGE && long.ends_with("é…"), "{} bytes", long.len());
    }
}
