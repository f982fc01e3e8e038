//! What the proxy observes of a request, by name.

use super::stage::Phase;

/// The event behind an observed span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedEvent {
    /// The request was received.
    Request,
    /// It was classified and admitted.
    Admit,
    /// It waited behind another request on the same connection.
    Pipelined,
    /// It had come whole and was held, because what it says decides where it goes.
    Dispatch,
    /// It was looked whether an earlier answer may be given again.
    Cache,
    /// It waited for the answer to the same request.
    Coalesce,
    /// A connection to the upstream was made.
    Connect,
    /// The request was written to the upstream.
    Send,
    /// An attempt that failed.
    Attempt,
    /// The response was sent.
    Response,
    /// The response waited for a slow client.
    Backpressure,
    /// The handler itself marked it, inside the upstream window.
    Marked,
    /// The server waited for a call of its own that passed through Lapwing, inside the upstream window.
    OutboundCall,
}

impl ObservedEvent {
    /// The name on every surface, in lower case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Admit => "admit",
            Self::Pipelined => "pipelined",
            Self::Dispatch => "dispatch",
            Self::Cache => "cache",
            Self::Coalesce => "coalesce",
            Self::Connect => "connect",
            Self::Send => "send",
            Self::Attempt => "attempt",
            Self::Response => "response",
            Self::Backpressure => "backpressure",
            Self::Marked => "marked",
            Self::OutboundCall => "outbound_call",
        }
    }

    /// The phase of the stage that it is, if the stage has phases.
    #[must_use]
    pub const fn phase(self) -> Option<Phase> {
        match self {
            Self::Dispatch => Some(Phase::Dispatch),
            Self::Coalesce => Some(Phase::Coalesced),
            _ => None,
        }
    }
}
