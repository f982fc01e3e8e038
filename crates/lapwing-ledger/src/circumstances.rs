//! What was seen of an exchange in addition to its time: how many others were in flight, how its bytes came, and what the feature
//! cache answered. It explains time and never claims any.

use schemars::JsonSchema;
use serde::Serialize;

/// Something that was seen of an exchange and takes no time by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Annotation {
    /// The upstream wrote the response's head and its body apart: the head was read, and the body was not there yet.
    SplitWrite,
    /// The upstream's peer was asked to acknowledge at once, so that the body did not wait for a delayed acknowledgement.
    QuickAck,
    /// It was one of the few split writes that are left without help, so that the help can be measured.
    Unhelped,
    /// The client wrote the request's head and its body apart.
    SplitRequest,
    /// The client asked for `100 Continue` before it sent the body.
    ExpectContinue,
    /// The first request on its client's connection.
    NewClientConnection,
    /// A connection to the upstream was made for it.
    NewUpstreamConnection,
    /// The body of the request is compressed.
    CompressedRequest,
    /// Its tensors came as JSON though the protocol has a binary form.
    JsonTensors,
    /// The client's HTTP/2 window had no room for the response, while its socket did.
    FlowControl,
    /// The body of the request was not read though its route is known: its format, or its compression.
    UnreadRequest,
    /// The body of the answer was not read though its route is known.
    UnreadResponse,
    /// The body of an answer that was not read is compressed.
    CompressedResponse,
    /// The first upstream took long, and a second one was asked too.
    Hedged,
    /// The second one answered first.
    HedgeWon,
}

impl Annotation {
    /// All annotations, in the order of their bits.
    pub const ALL: [Self; 15] = [
        Self::SplitWrite,
        Self::QuickAck,
        Self::Unhelped,
        Self::SplitRequest,
        Self::ExpectContinue,
        Self::NewClientConnection,
        Self::NewUpstreamConnection,
        Self::CompressedRequest,
        Self::JsonTensors,
        Self::FlowControl,
        Self::UnreadRequest,
        Self::UnreadResponse,
        Self::CompressedResponse,
        Self::Hedged,
        Self::HedgeWon,
    ];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SplitWrite => "split_write",
            Self::QuickAck => "quick_ack",
            Self::Unhelped => "unhelped",
            Self::SplitRequest => "split_request",
            Self::ExpectContinue => "expect_continue",
            Self::NewClientConnection => "new_client_connection",
            Self::NewUpstreamConnection => "new_upstream_connection",
            Self::CompressedRequest => "compressed_request",
            Self::JsonTensors => "json_tensors",
            Self::FlowControl => "flow_control",
            Self::UnreadRequest => "unread_request",
            Self::UnreadResponse => "unread_response",
            Self::CompressedResponse => "compressed_response",
            Self::Hedged => "hedged",
            Self::HedgeWon => "hedge_won",
        }
    }
}

/// The annotations of one exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations(u16);

impl Annotations {
    /// Adds one.
    #[inline]
    pub const fn add(&mut self, annotation: Annotation) {
        self.0 |= 1 << annotation as u16;
    }

    /// Whether it is among them.
    #[must_use]
    #[inline]
    pub const fn has(self, annotation: Annotation) -> bool {
        self.0 & (1 << annotation as u16) != 0
    }

    /// Those that are there.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Annotation> {
        Annotation::ALL.into_iter().filter(move |annotation| self.has(*annotation))
    }
}

/// What was seen of an exchange in addition to its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// How many requests this process had in flight when it arrived, itself included; zero if unknown.
    pub in_flight: u32,
    /// What else was seen.
    pub annotations: Annotations,
    /// From the response's head to the first byte of its body, in nanoseconds; zero if they came together.
    pub body_gap_ns: u64,
    /// Features of the request that a cache had, as the upstream says.
    pub cache_hits: u32,
    /// Features that it had to fetch.
    pub cache_misses: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_annotation_has_a_bit_and_a_name_of_its_own() {
        let mut all = Annotations::default();
        for (at, annotation) in Annotation::ALL.into_iter().enumerate() {
            assert_eq!((annotation as usize, all.has(annotation)), (at, false));
            all.add(annotation);
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(Annotation::name).collect();
        assert_eq!(names.len(), Annotation::ALL.len());
        assert!(Annotation::ALL.into_iter().all(|annotation| serde_json::json!(annotation) == annotation.name()));
    }
}
