//! What costs time or work on every request, whatever the budget: found in addition to the verdicts, and named with its fix.

use super::part::Parts;
use super::quantity::{Quantities, Quantity as Q};
use super::report::Notice;
use super::rules::Condition::{self, AtLeast};
use super::rules::Operand::Measured;
use super::rules::evidence;
use super::text::fill;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoticeRule {
    /// The name in docs/DIAGNOSIS.md.
    pub(crate) name: &'static str,
    pub(crate) conditions: &'static [Condition],
    /// The notice in words; names of quantities in braces are replaced.
    pub(crate) sentence: &'static str,
    /// What to do, the cheapest first.
    pub(crate) fixes: &'static [&'static str],
}

/// From this mean size on tensors as JSON are worth a word, in bytes.
const LARGE_JSON_BYTES: f64 = 16_384.0;

/// All of them.
pub(crate) const NOTICES: &[NoticeRule] = &[
    NoticeRule {
        name: "connection_per_request",
        conditions: &[AtLeast(Measured(Q::NewClientShare), 0.5)],
        sentence: "{new_client_share} of the requests are the first on their client's connection: each waits a round trip for it, before \
                   its time begins here",
        fixes: &["keep connections open in the clients: one session or pool for all requests"],
    },
    NoticeRule {
        name: "slow_connects",
        conditions: &[AtLeast(Measured(Q::NewUpstreamShare), 0.01), AtLeast(Measured(Q::ConnectTime), 0.005)],
        sentence: "connecting to the upstream takes {connect_time}, its name's look-up included, and {new_upstream_share} of the requests \
                   wait for that",
        fixes: &[
            "let the upstream keep connections open for longer than requests are apart",
            "give the upstream's address instead of a name, or a resolver that is near",
        ],
    },
    NoticeRule {
        name: "expect_continue",
        conditions: &[AtLeast(Measured(Q::ExpectShare), 0.2), AtLeast(Measured(Q::ExpectWait), 0.001)],
        sentence: "{expect_share} of the requests ask for 100 Continue before they send their body, and take {expect_wait} until it is here",
        fixes: &["turn Expect off in the clients (curl: -H 'Expect:'), which saves a round trip for each request"],
    },
    NoticeRule {
        name: "json_tensors",
        conditions: &[AtLeast(Measured(Q::JsonShare), 0.5), AtLeast(Measured(Q::JsonBytes), LARGE_JSON_BYTES)],
        sentence: "{json_share} of the requests carry their tensors as JSON, {json_bytes} each; in the binary form a 32-bit number takes 4 \
                   bytes, as text up to ten times as many",
        fixes: &["send tensors in the protocol's binary form (binary_data_size, or gRPC's raw_input_contents)"],
    },
    NoticeRule {
        name: "compressed_tensors",
        conditions: &[AtLeast(Measured(Q::CompressedShare), 0.2)],
        sentence: "{compressed_share} of the requests are compressed: numbers of a tensor hardly shrink, and both sides spend processor time \
                   on it",
        fixes: &["send tensors uncompressed in their binary form; compress text only where the link is slow"],
    },
    NoticeRule {
        name: "flow_control",
        conditions: &[AtLeast(Measured(Q::FlowControlShare), 0.1), AtLeast(Measured(Q::FlowControlWait), 0.001)],
        sentence: "{flow_control_share} of the answers wait for the client's HTTP/2 window although its socket has room, and take \
                   {flow_control_wait} to leave",
        fixes: &[
            "raise the HTTP/2 windows of the clients above the largest answer, or above bandwidth times round trip (Go: \
             grpc.WithInitialWindowSize and WithInitialConnWindowSize; C++ and Python: grpc.http2.lookahead_bytes; Envoy: \
             initial_stream_window_size)",
            "ask for the outputs that are used only",
        ],
    },
];

/// What holds of a series.
pub(crate) fn find(quantities: &Quantities) -> Vec<Notice> {
    let parts = Parts::default();
    let holds = |notice: &&NoticeRule| notice.conditions.iter().all(|condition| condition.holds(quantities, &parts));
    let notices = NOTICES.iter().filter(holds).map(|notice| Notice {
        name: notice.name.to_owned(),
        sentence: fill(notice.sentence, 0.0, "", quantities),
        evidence: evidence(notice.conditions, &[], quantities, &parts),
        fixes: notice.fixes.iter().map(|fix| (*fix).to_owned()).collect(),
    });
    notices.collect()
}
