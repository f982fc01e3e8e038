//! What becomes of sampled requests and of their copies, counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapwing_proxy::Incomplete;

macro_rules! drops {
    ($($variant:ident $name:literal $help:literal;)*) => {
        /// Why a copy was not sent, or its answer not compared.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ShadowDrop { $(#[doc = $help] $variant,)* }

        impl ShadowDrop {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name on every surface.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

drops! {
    QueueFull "queue_full" "More copies were handed over than the shadow's thread takes.";
    Waiting "waiting" "More copied requests waited for their answer than `shadow.max_waiting`.";
    TooLarge "too_large" "The body exceeds `shadow.max_body`.";
    BudgetSpent "budget" "The bodies that are kept exceed `shadow.budget`.";
    Cut "cut" "The client's request or its answer broke off.";
    Busy "busy" "The target had as many copies in flight as `shadow.concurrency` allows, for a second.";
    CircuitOpen "circuit_open" "The target failed repeatedly and is left alone for a while.";
    AnswerTooLarge "answer_too_large" "The target's answer exceeds `shadow.max_body` and was not read further, which counts as a failure.";
    MappingBody "mapping_body" "The request of a mapped route is no JSON, has no such part, or cannot be decompressed to `shadow.max_body`.";
    MappingMissing "mapping_missing" "A path of the mapping leads to nothing in the request.";
    MappingRagged "mapping_ragged" "Lists that the mapping leads to have unequal lengths, or stand beside single values.";
    MappingType "mapping_type" "A value that the mapping leads to is none of the input's datatype, or no text.";
    MappingShape "mapping_shape" "The lists that the mapping leads to do not have the shape of the model's input.";
    MappingTooLarge "mapping_too_large" "The tensors that the request becomes exceed `shadow.max_body`.";
    MappingTokens "mapping_tokens" "The request has no text for the model's tokenizer, or the tokenizer fails on it.";
    MappingImage "mapping_image" "The picture is neither a JPEG nor a PNG, is damaged or too large, or servers decode it differently.";
    MappingParameter "mapping_parameter" "The request has another value than `parameters` of the mapping, so that the model's answer would be another.";
    UnknownRoute "unknown_route" "By its path, and whether its body is a form, the request is of no known inference protocol, and `shadow.routes` does not name it.";
    Session "session" "The request has a cookie or a CSRF token, and `shadow.routes` does not name its route.";
    NotRecognised "not_recognised" "The request, or the answer, does not have the form of the protocol that its path suggests, and `shadow.routes` does not name it.";
    Learning "learning" "Its route was not yet repeatable: too few exchanges in a row were recognised.";
    Effect "effect" "It is recognised, and has an effect beyond its answer: a sequence, a conversation, a stored answer, a tool of the server, shared memory.";
    Secret "secret" "Its body has a member with the name of a secret, or cannot be searched for one.";
    NoTarget "no_target" "All targets are sides of a live split, which did not place the request.";
    Unredactable "unredactable" "There are values to hide, and the body is none in which they can be replaced, so that it is not recorded.";
    CompareFull "compare_full" "More pairs waited to be compared than there is room for, so that outputs are not compared.";
    ResultLost "result_lost" "More results of comparisons waited than there is room for: the oldest is in the counts of outputs, and not in those of pairs.";
}

impl From<Incomplete> for ShadowDrop {
    /// Why there is no copy of a client's body, as it is counted.
    fn from(incomplete: Incomplete) -> Self {
        match incomplete {
            Incomplete::TooLarge => Self::TooLarge,
            Incomplete::BudgetSpent => Self::BudgetSpent,
            Incomplete::Aborted => Self::Cut,
        }
    }
}

/// The counts of one target.
#[derive(Debug, Default)]
pub struct TargetCounters {
    /// Copies that were sent.
    pub sent: AtomicU64,
    /// Copies that were answered in full, whatever the status.
    pub answered: AtomicU64,
    /// Copies that got no answer, none in time, or one that is too large.
    pub failed: AtomicU64,
    dropped: DropCounts,
}

/// Counts by reason.
#[derive(Debug)]
struct DropCounts([AtomicU64; ShadowDrop::ALL.len()]);

impl Default for DropCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl TargetCounters {
    /// Counts a copy that was dropped.
    pub fn drop_copy(&self, reason: ShadowDrop) {
        self.dropped.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// How many copies were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: ShadowDrop) -> u64 {
        self.dropped.0[reason as usize].load(Relaxed)
    }
}

/// The counts of all targets, by their index, and of the requests that were dropped before they became copies.
#[derive(Debug, Default)]
pub struct ShadowCounters {
    /// Requests that were sampled and handed over.
    pub sampled: AtomicU64,
    targets: Vec<TargetCounters>,
    dropped: DropCounts,
}

impl ShadowCounters {
    /// For this many targets.
    #[must_use]
    pub fn new(targets: usize) -> Self {
        Self { targets: (0..targets).map(|_| TargetCounters::default()).collect(), ..Self::default() }
    }

    /// The counts of a target.
    #[must_use]
    pub fn target(&self, index: usize) -> Option<&TargetCounters> {
        self.targets.get(index)
    }

    /// Counts a sampled request of which no copy is sent to any target.
    pub fn drop_sampled(&self, reason: ShadowDrop) {
        self.dropped.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// How many sampled requests were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: ShadowDrop) -> u64 {
        self.dropped.0[reason as usize].load(Relaxed)
    }

    /// The same of every reason, in the order of [`ShadowDrop::ALL`].
    #[must_use]
    pub fn all_dropped(&self) -> Vec<u64> {
        ShadowDrop::ALL.iter().map(|reason| self.dropped(*reason)).collect()
    }
}
