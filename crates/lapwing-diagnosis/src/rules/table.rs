//! The table of rules. A row claims time that no row above it has claimed, so a more specific row stands above a more general one.

use super::super::bound::{Cause, LatencyBound};
use super::super::part::{Part, PartSet};
use super::super::quantity::Quantity as Q;
use super::Condition::{AtLeast, AtMost};
use super::Operand::{Measured, ShareOf};
use super::Rule;

/// Below this rate a client's connection is called slow: 64 Mbit/s.
const SLOW_BYTES_PER_SECOND: f64 = 8e6;
/// From this size on bodies are called large.
const LARGE_BYTES: f64 = 262_144.0;
/// The index of dispersion from which on arrivals are called bursts.
const BURSTY: f64 = 2.5;

const SERVER: PartSet = PartSet::of(&Part::OF_SERVER).with(PartSet::of(&[Part::OwnQueue]));
const QUEUES: PartSet = PartSet::of(&[Part::Queue, Part::OwnQueue]);
const HYDRATION: PartSet = PartSet::of(&[Part::Hydration]);
const FORWARD: PartSet = PartSet::of(&[Part::Forward]);
const EDGE: PartSet = PartSet::of(&[Part::Edge]);
const GAP: PartSet = PartSet::of(&[Part::BodyGap]);
const CONNECT: PartSet = PartSet::of(&[Part::Connect]);
const CLIENT: PartSet = PartSet::of(&[Part::Ingress, Part::Egress, Part::Backpressure]);
const BYTES: PartSet = CLIENT.with(PartSet::of(&[Part::Send, Part::Edge, Part::Unreported]));

/// What the rules of the feature store have in common.
const FEATURE: Rule = Rule { bound: LatencyBound::Feature, claims: HYDRATION, ..Rule::ROW };

/// All rules, in the order in which they are tried.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "split_writes",
        bound: LatencyBound::Network,
        cause: Cause::SplitWrites,
        claims: GAP,
        least_share: 0.0,
        conditions: &[
            AtLeast(Measured(Q::SplitShare), 0.2),
            AtLeast(Measured(Q::SplitUnhelped), 3.0),
            AtLeast(Measured(Q::SplitHelped), 10.0),
            AtLeast(Measured(Q::SplitSaved), 0.01),
            AtLeast(Measured(Q::SplitSavedShare), 0.5),
        ],
        evidence: &[Q::SplitWait],
        sentence: "the server writes head and body of an answer apart and waits for an acknowledgement between them: {split_saved} of \
                   each answer that Lapwing does not help; it helped {split_helped}",
        fixes: &[
            "set TCP_NODELAY on the server's sockets (Python's http.server: disable_nagle_algorithm = True)",
            "write head and body with one call, or buffer the response",
        ],
        is_always: true,
    },
    Rule {
        name: "split_writes_without_help",
        bound: LatencyBound::Network,
        cause: Cause::SplitWrites,
        claims: GAP,
        conditions: &[
            AtLeast(Measured(Q::SplitShare), 0.2),
            AtMost(Measured(Q::SplitHelped), 0.0),
            AtLeast(Measured(Q::SplitWait), 0.035),
            AtMost(Measured(Q::SplitWait), 0.25),
        ],
        sentence: "{share} of {time} lies between an answer's head and its body, {split_wait} each, which is the time after which a \
                   delayed acknowledgement is sent",
        fixes: &[
            "let Lapwing acknowledge at once, which measures what that saves",
            "set TCP_NODELAY on the server's sockets, or write head and body with one call",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "cold_start",
        bound: LatencyBound::ColdStart,
        cause: Cause::ColdStart,
        claims: SERVER.with(CONNECT),
        conditions: &[
            AtLeast(Measured(Q::AfterIdleShare), 0.6),
            AtMost(Measured(Q::AfterIdleRequests), 0.5),
            AtLeast(Measured(Q::ColdGaps), 0.5),
            AtLeast(Measured(Q::IdleGaps), 1.0),
        ],
        sentence: "{after_idle_share} of {time} is in the first requests after idle time ({after_idle_requests} of all requests)",
        fixes: &[
            "warm the model up before it is ready, with a request of each shape",
            "keep it loaded and its threads awake: no scaling to zero, no idle time-out of connections or devices",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "pauses",
        bound: LatencyBound::Pauses,
        cause: Cause::Pauses,
        claims: SERVER,
        conditions: &[
            AtLeast(Measured(Q::StalledShare), 0.5),
            AtLeast(Measured(Q::Stalls), 2.0),
            AtLeast(Measured(Q::StallRequests), 1.5),
            AtMost(Measured(Q::AfterIdleShare), 0.5),
            AtMost(Measured(Q::WorkShare), 0.5),
            AtMost(ShareOf("share of hydration", HYDRATION), 0.5),
        ],
        evidence: &[Q::StallLength, Q::StallPeriod],
        sentence: "the server stands still now and then, whatever the load: {stalls} stalls of about {stall_length} explain \
                   {stalled_share} of {time}",
        fixes: &[
            "look for what happens then: collection of garbage (gc.freeze(), fewer objects), a lock, logging, a checkpoint",
            "raise the CPU limit or remove it: cpu.stat counts throttled periods",
            "send requests elsewhere meanwhile: a second replica, hedged requests",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "bursts",
        bound: LatencyBound::Queue,
        cause: Cause::Bursts,
        claims: QUEUES,
        conditions: &[AtLeast(Measured(Q::Dispersion), BURSTY), AtLeast(Measured(Q::Bursts), 2.0)],
        evidence: &[Q::BurstSize, Q::BurstPeriod, Q::Concurrency],
        sentence: "{share} of {time} is queue, in bursts of about {burst_size} requests every {burst_period}",
        fixes: &[
            "spread the bursts where they are made: jitter on timers and retries, a rate limit at the caller",
            "raise instances, threads or the batch limit, so that a burst is worked on at once",
            "only then more replicas or hardware",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "saturated",
        bound: LatencyBound::Queue,
        cause: Cause::Saturated,
        claims: QUEUES,
        conditions: &[AtLeast(Measured(Q::QueuedShare), 0.5), AtMost(Measured(Q::Dispersion), BURSTY)],
        evidence: &[Q::Concurrency, Q::Rate],
        sentence: "{share} of {time} is queue, and {queued_share} of all requests wait: more arrives than the server can do",
        fixes: &[
            "raise the batch limit, so that requests share a run of the model",
            "raise instances or threads, as far as the device has room",
            "add a replica, or shed what cannot be served in time",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "queue",
        bound: LatencyBound::Queue,
        claims: QUEUES,
        evidence: &[Q::QueuedShare, Q::Dispersion, Q::Concurrency],
        sentence: "{share} of {time} is queue",
        fixes: &[
            "raise instances, threads or the batch limit",
            "look at the requests in front: one long request holds others up",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "slow_store_at_times",
        cause: Cause::SlowStore,
        conditions: &[AtLeast(Measured(Q::MissTimeRatio), 2.5)],
        evidence: &[Q::MissTime, Q::MissRate, Q::MissRatio],
        sentence: "{share} of {time} is hydration: the feature store takes {miss_time_ratio} times as long for a missed feature as otherwise",
        fixes: STORE,
        ..FEATURE
    },
    Rule {
        name: "cold_cache_at_times",
        cause: Cause::ColdCache,
        conditions: &[
            AtLeast(Measured(Q::SlowMissRate), 0.5),
            AtLeast(Measured(Q::MissRatio), 2.0),
            AtMost(Measured(Q::MissTimeRatio), 1.5),
        ],
        evidence: &[Q::MissRate, Q::MissTime],
        sentence: "{share} of {time} is hydration: those requests miss {slow_miss_rate} of what they look up, and a miss takes as long as ever",
        fixes: CACHE,
        ..FEATURE
    },
    Rule {
        name: "cold_cache",
        cause: Cause::ColdCache,
        conditions: &[AtLeast(Measured(Q::MissRate), 0.5)],
        evidence: &[Q::MissTrend, Q::MissRatio, Q::MissTime],
        sentence: "{share} of {time} is hydration, and the feature cache misses {miss_rate} of what is looked up",
        fixes: CACHE,
        ..FEATURE
    },
    Rule {
        name: "cold_cache_rising",
        cause: Cause::ColdCache,
        conditions: &[AtLeast(Measured(Q::MissTrend), 0.15)],
        evidence: &[Q::MissRate, Q::MissRatio, Q::MissTime],
        sentence: "{share} of {time} is hydration, and the feature cache misses more and more: {miss_rate} of what is looked up",
        fixes: CACHE,
        ..FEATURE
    },
    Rule {
        name: "slow_store",
        cause: Cause::SlowStore,
        conditions: &[AtMost(Measured(Q::MissRate), 0.5)],
        evidence: &[Q::MissTime, Q::MissTimeRatio],
        sentence: "{share} of {time} is hydration though the cache has most features: it misses {miss_rate}, and each takes {miss_time}",
        fixes: STORE,
        ..FEATURE
    },
    Rule {
        name: "feature",
        sentence: "{share} of {time} is hydration",
        fixes: &["let the server say how many features its cache had, to tell a cold cache from a slow store"],
        ..FEATURE
    },
    Rule {
        name: "long_inputs",
        bound: LatencyBound::Compute,
        cause: Cause::LongInputs,
        claims: PartSet::of(&[Part::Forward, Part::Preprocessing]),
        conditions: &[
            AtLeast(Measured(Q::WorkShare), 0.4),
            AtLeast(Measured(Q::WorkRatio), 2.0),
            AtMost(Measured(Q::PerUnitRatio), 1.5),
            AtLeast(ShareOf("share of forward", FORWARD), 0.2),
        ],
        evidence: &[Q::PerUnitChange],
        sentence: "{share} of {time} is the model's own, on requests with {work_ratio} times the usual work; forward for each unit is \
                   {per_unit_ratio} times that of the body",
        fixes: &[
            "limit the length of inputs, or truncate, or split them into several requests",
            "batch by length, or give long requests instances of their own",
            "chunk the prefill (generative models)",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "slow_model",
        bound: LatencyBound::Compute,
        cause: Cause::SlowModel,
        claims: FORWARD,
        evidence: &[Q::PerUnitRatio, Q::PerUnitChange, Q::WorkRatio, Q::WorkShare, Q::Concurrency],
        sentence: "{share} of {time} is forward: the model itself",
        fixes: &[
            "look at its computational debt: the time at best beside the time taken",
            "batch, quantize or compile the model",
            "only then a faster device",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "oversized_bodies",
        bound: LatencyBound::Network,
        cause: Cause::OversizedBodies,
        claims: BYTES,
        conditions: &[
            AtLeast(Measured(Q::TransferBytes), LARGE_BYTES),
            AtLeast(Measured(Q::BytesPerUnit), 4_096.0),
            AtLeast(Measured(Q::TransferRate), SLOW_BYTES_PER_SECOND),
        ],
        evidence: &[Q::JsonShare, Q::CompressedShare],
        sentence: "{share} of {time} goes to moving bytes: {transfer_bytes} a request, {bytes_per_unit} for each unit of work",
        fixes: &[
            "send what the model needs: smaller images, fewer fields, no copies of features that the server has",
            "send tensors in binary instead of JSON",
            "ask for the outputs that are used only",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "slow_client",
        bound: LatencyBound::Network,
        cause: Cause::SlowClient,
        claims: CLIENT,
        conditions: &[AtMost(Measured(Q::TransferRate), SLOW_BYTES_PER_SECOND)],
        evidence: &[Q::TransferBytes],
        sentence: "{share} of {time} waits for the client, whose bytes go at {transfer_rate}",
        fixes: &[
            "look at the client: does it read while it works, is its link slow or lossy",
            "send less, or compressed text; end slow connections sooner",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "far_region",
        bound: LatencyBound::Network,
        cause: Cause::FarRegion,
        claims: EDGE.with(CONNECT),
        conditions: &[
            AtLeast(Measured(Q::EdgeFloor), 0.4),
            AtLeast(Measured(Q::EdgeTime), 0.002),
            AtMost(Measured(Q::TransferBytes), LARGE_BYTES),
        ],
        sentence: "{share} of {time} passes before the server's first span and after its last, {edge_time} each time whatever the \
                   work: the way to the server",
        fixes: &[
            "run Lapwing and its clients beside the model server, in its region and zone",
            "keep connections open and send several requests at once",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "reconnects",
        bound: LatencyBound::Network,
        cause: Cause::Reconnects,
        claims: CONNECT,
        conditions: &[AtLeast(Measured(Q::NewUpstreamShare), 0.3)],
        evidence: &[Q::NewClientShare],
        sentence: "{share} of {time} goes to connecting: {new_upstream_share} of all requests have a new connection to the upstream",
        fixes: &["keep connections alive at the server: a longer keep-alive time, no limit of requests for each", "use HTTP/2"],
        ..Rule::ROW
    },
    Rule {
        name: "network",
        bound: LatencyBound::Network,
        claims: CLIENT.with(EDGE).with(CONNECT).with(PartSet::of(&[Part::Send])),
        evidence: &[Q::TransferBytes, Q::TransferRate, Q::EdgeTime, Q::NewUpstreamShare],
        sentence: "{share} of {time} is bytes on their way",
        fixes: &["look at the connections: round-trip time, retransmissions, windows that are full"],
        ..Rule::ROW
    },
    Rule {
        name: "preprocessing",
        bound: LatencyBound::Preprocessing,
        claims: PartSet::of(&[Part::Preprocessing]),
        evidence: &[Q::WorkShare, Q::WorkRatio],
        sentence: "{share} of {time} is preprocessing",
        fixes: &["move it to threads of its own, or in front of the queue", "prepare inputs at the caller"],
        ..Rule::ROW
    },
    Rule {
        name: "heavy_postprocessing",
        bound: LatencyBound::Postprocessing,
        cause: Cause::HeavyPostprocessing,
        claims: PartSet::of(&[Part::Postprocessing]),
        evidence: &[Q::WorkShare, Q::WorkRatio],
        sentence: "{share} of {time} is postprocessing",
        fixes: &[
            "do less of it: top k before sorting, on tensors instead of objects",
            "move it to threads of its own, so that the model does not wait for it",
        ],
        ..Rule::ROW
    },
    Rule {
        name: "downstream",
        bound: LatencyBound::Downstream,
        claims: PartSet::of(&[Part::Downstream]),
        evidence: &[Q::WorkShare],
        sentence: "{share} of {time} is calls to other services after the model",
        fixes: &["answer first and call afterwards, where the answer does not need it", "call in parallel, with time limits"],
        ..Rule::ROW
    },
    Rule {
        name: "proxy",
        bound: LatencyBound::Proxy,
        claims: PartSet::of(&[Part::Validation, Part::Own]),
        evidence: &[Q::Concurrency, Q::Rate],
        sentence: "{share} of {time} is Lapwing's own",
        fixes: &["give Lapwing a CPU of its own, or more workers", "report it: this must not happen"],
        ..Rule::ROW
    },
];

const STORE: &[&str] = &[
    "fetch all features of a request with one call, and look at the store's own latency and connections",
    "hedge or limit slow look-ups, and answer with what is there",
    "cache for longer, or add a replica of the store",
];
const CACHE: &[&str] = &[
    "warm the cache before traffic comes, and keep it over restarts",
    "look at its size and time to live against what is looked up; spread expiries",
    "fetch all misses of a request with one call",
];
