//! Why a request or its answer stays out of the cache, under names for metrics.

use http::header::HeaderName;

/// Why a request is not answered from the cache, or its answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheRefusal {
    /// The request is no call of a known protocol that leaves nothing behind: it may be one of a sequence, or change something.
    NotRepeatable,
    /// The request is compressed, so nobody knows what it asks for.
    Compressed,
    /// The server would read from, or write to, memory that it shares with the client.
    SharedMemory,
    /// The answer belongs to a sequence of calls, or the server keeps it.
    Stateful,
    /// The answer is drawn by chance, or may be.
    Sampled,
    /// The answer comes as a stream.
    Stream,
    /// The request is to be answered on a condition, or in part.
    Conditional,
    /// `Cache-Control: no-store` in the request.
    RequestNoStore,
    /// The status is not 200.
    Status,
    /// `grpc-status` is not 0, or not there.
    GrpcStatus,
    /// The answer did not come to its end.
    Incomplete,
    /// The answer is larger than `max_entry`.
    TooLarge,
    /// `Cache-Control: no-store` in the answer.
    NoStore,
    /// `Cache-Control: private` in the answer.
    Private,
    /// `Cache-Control: no-cache` in the answer.
    NoCache,
    /// The answer sets a cookie.
    SetCookie,
    /// `Vary: *`
    VaryAny,
    /// The answer varies with a field that is not in the key.
    VaryUnkeyed,
    /// By its own account, the answer is out of date.
    Expired,
    /// The `id` in the answer cannot be replaced.
    UnreadableId,
}

impl CacheRefusal {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::NotRepeatable,
        Self::Compressed,
        Self::SharedMemory,
        Self::Stateful,
        Self::Sampled,
        Self::Stream,
        Self::Conditional,
        Self::RequestNoStore,
        Self::Status,
        Self::GrpcStatus,
        Self::Incomplete,
        Self::TooLarge,
        Self::NoStore,
        Self::Private,
        Self::NoCache,
        Self::SetCookie,
        Self::VaryAny,
        Self::VaryUnkeyed,
        Self::Expired,
        Self::UnreadableId,
    ];

    /// Its name as the value of a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotRepeatable => "not_repeatable",
            Self::Compressed => "compressed",
            Self::SharedMemory => "shared_memory",
            Self::Stateful => "stateful",
            Self::Sampled => "sampled",
            Self::Stream => "stream",
            Self::Conditional => "conditional",
            Self::RequestNoStore => "request_no_store",
            Self::Status => "status",
            Self::GrpcStatus => "grpc_status",
            Self::Incomplete => "incomplete",
            Self::TooLarge => "too_large",
            Self::NoStore => "no_store",
            Self::Private => "private",
            Self::NoCache => "no_cache",
            Self::SetCookie => "set_cookie",
            Self::VaryAny => "vary_any",
            Self::VaryUnkeyed => "vary_unkeyed",
            Self::Expired => "expired",
            Self::UnreadableId => "unreadable_id",
        }
    }
}

/// The field of gRPC that has a call's status.
pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own() {
        let names: BTreeSet<_> = CacheRefusal::ALL.map(CacheRefusal::name).into_iter().collect();
        assert_eq!(names.len(), CacheRefusal::ALL.len());
        for (at, refusal) in CacheRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at);
        }
    }
}
