//! The ways in which a request does not end well, each with its words and its fixes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_ledger::{Ledger, Outcome};

/// The status by which a server says that it gets too many requests.
const TOO_MANY_REQUESTS: u16 = 429;

/// In which way requests do not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The upstream answers with an error: 5xx, a gRPC status that blames it, or an error in the body.
    UpstreamFailing,
    /// The upstream refuses requests because there are too many (429).
    UpstreamRefusing,
    /// The upstream cannot be reached.
    UpstreamUnreachable,
    /// The upstream breaks the connection or the answer off, or sends what is no answer.
    UpstreamBreaking,
    /// The upstream takes longer than Lapwing's limits allow.
    UpstreamTooSlow,
    /// Lapwing sheds requests.
    Shedding,
    /// Clients leave before they have their answer.
    ClientsLeaving,
    /// The upstream answers 4xx, or with a gRPC status that blames the client.
    ClientErrors,
    /// Lapwing refuses requests that are malformed, too large or stalled.
    Rejected,
}

/// The words of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureWords {
    /// What it is, in a main clause.
    pub(crate) title: &'static str,
    /// What became of the requests: `40 of 40 requests …`.
    pub(crate) became: &'static str,
    /// What to do, the cheapest first.
    pub(crate) fixes: &'static [&'static str],
}

impl FailureKind {
    /// How many kinds there are.
    pub const COUNT: usize = 9;

    /// All kinds, in the order of their places.
    pub const ALL: [Self; Self::COUNT] = [
        Self::UpstreamFailing,
        Self::UpstreamRefusing,
        Self::UpstreamUnreachable,
        Self::UpstreamBreaking,
        Self::UpstreamTooSlow,
        Self::Shedding,
        Self::ClientsLeaving,
        Self::ClientErrors,
        Self::Rejected,
    ];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UpstreamFailing => "upstream_failing",
            Self::UpstreamRefusing => "upstream_refusing",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamBreaking => "upstream_breaking",
            Self::UpstreamTooSlow => "upstream_too_slow",
            Self::Shedding => "shedding",
            Self::ClientsLeaving => "clients_leaving",
            Self::ClientErrors => "client_errors",
            Self::Rejected => "rejected",
        }
    }

    /// The share of a series' requests that it may have while the series counts as sound; `None` if it says nothing of the server: what
    /// clients ask for wrongly.
    #[must_use]
    pub const fn limit(self) -> Option<f64> {
        match self {
            Self::ClientErrors | Self::Rejected => None,
            // people close a page or stop a generation
            Self::ClientsLeaving => Some(0.05),
            _ => Some(0.01),
        }
    }

    /// That of a closed ledger; `None` if it ended well.
    pub(crate) fn of(ledger: &Ledger) -> Option<Self> {
        let is = |outcome| ledger.outcome == outcome;
        if is(Outcome::Ok) {
            return None;
        }
        let by_outcome = [
            (Outcome::ClientError, Self::ClientErrors),
            (Outcome::Rejected, Self::Rejected),
            (Outcome::Shed, Self::Shedding),
            (Outcome::Unreachable, Self::UpstreamUnreachable),
            (Outcome::Broken, Self::UpstreamBreaking),
            (Outcome::TimedOut, Self::UpstreamTooSlow),
            (Outcome::Cancelled, Self::ClientsLeaving),
        ];
        // a server error or a body error, and whatever else there is: the upstream answered, and not well
        let kind = by_outcome.into_iter().find(|(outcome, _)| is(*outcome)).map_or(Self::UpstreamFailing, |(_, kind)| kind);
        let is_refused = kind == Self::ClientErrors && ledger.status == TOO_MANY_REQUESTS;
        Some(if is_refused { Self::UpstreamRefusing } else { kind })
    }

    /// Its words.
    pub(crate) const fn words(self) -> FailureWords {
        let (title, became, fixes): (_, _, &'static [&'static str]) = match self {
            Self::UpstreamFailing => (
                "the upstream is failing",
                "ended in an error of the upstream",
                &[
                    "read the upstream's own log at the time of these requests: the errors are its own, Lapwing passes them on as they are",
                    "send one of these requests to the upstream directly, without Lapwing",
                ],
            ),
            Self::UpstreamRefusing => (
                "the upstream is refusing requests",
                "were answered 429, too many requests",
                &[
                    "raise the upstream's limit of requests (its queue, its rate limit), if it has room",
                    "let clients wait as Retry-After says and send less, or add a replica",
                ],
            ),
            Self::UpstreamUnreachable => (
                "the upstream is unreachable",
                "found no connection to the upstream",
                &[
                    "look whether the upstream runs and listens at the address that the setting upstream names; /readyz says what connecting to it gives",
                    "if it restarts at times, look why (its exit code, its memory limit, its probes)",
                ],
            ),
            Self::UpstreamBreaking => (
                "the upstream is breaking its answers off",
                "lost the connection to the upstream before the end of the answer, or got what is no valid answer",
                &[
                    "look whether the upstream's workers crash or are restarted (exit codes, memory limit, worker time-outs)",
                    "look whether it speaks the protocol that proxy.upstream_protocol has for it",
                ],
            ),
            Self::UpstreamTooSlow => (
                "the upstream is too slow for the time limits",
                "got no answer within Lapwing's time limits",
                &[
                    "look at what the upstream does meanwhile: its queue, its load, a lock",
                    "if it may take so long, raise the limit that the answer names (proxy.header_timeout, proxy.idle_timeout)",
                ],
            ),
            Self::Shedding => (
                "Lapwing is shedding requests",
                "were shed by Lapwing, because the requests in flight were at their limit",
                &[
                    "raise proxy.max_in_flight, if the upstream can take more at once",
                    "let clients send less at once, or add a replica",
                ],
            ),
            Self::ClientsLeaving => (
                "clients are leaving",
                "were given up by their clients before the answer was complete",
                &[
                    "look at the clients' own time limit: where most leave after the same time, it is shorter than the answer takes",
                    "make the answer sooner, or stream it",
                ],
            ),
            Self::ClientErrors => (
                "clients ask for what the upstream does not take",
                "were answered with a client's error (4xx, or a gRPC status that blames the caller)",
                &["look at what these clients send: the path, the model's name, the credentials, the body"],
            ),
            Self::Rejected => (
                "Lapwing rejects requests",
                "were refused by Lapwing as malformed, too large or stalled",
                &["look at what these clients send; the answer names the limit, which a setting of proxy raises"],
            ),
        };
        FailureWords { title, became, fixes }
    }
}
