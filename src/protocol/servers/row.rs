//! One row of the table of what model servers report: where it stands, in which unit, and what it really means.

use crate::ledger::{Phase, Server, Stage, Unit};

/// Where a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// In the body of a response: keys joined by dots, `[]` for any element, as `protocol::wire` reads them.
    Body(&'static str),
    /// In a response's head or trailers, name in lower case; over gRPC its metadata.
    Header(&'static str),
    /// In a protobuf response: field numbers from the message down.
    Proto(&'static [u32]),
    /// An attribute of the server's span.
    SpanAttribute(&'static str),
    /// A span of this name (`*` for any text), whose own times count.
    Span(&'static str),
    /// From one event of a span to another: span name (`*`), event, event. The second may be of a child of that span.
    SpanEvents(&'static str, &'static str, &'static str),
    /// A metric family of the server's Prometheus text, counters with their `_total`; of histograms and summaries the mean
    /// between two polls. `{label=value}` behind the name: only series with that label.
    Metric(&'static str),
    /// A value in the server's own statistics, by JSON path in `Carrier::Body`'s notation.
    Statistics(&'static str),
}

/// What a value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// How long a stage took.
    Stage(Stage),
    /// How long a phase of forward took.
    Phase(Phase),
    /// Time to first token.
    FirstToken,
    /// Mean time per output token after the first.
    PerOutputToken,
    /// The whole time in the server; claims nothing by itself.
    Total,
    /// How much work it was.
    Work(Unit),
    /// Rows in the batch in which it ran.
    BatchSize,
    /// Requests that run.
    Running,
    /// Requests that wait.
    Waiting,
    /// Padding in what was executed.
    Padding,
    /// Which model answered.
    Model,
}

/// The unit on the wire; never inferred from a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// A duration as Rust's `Debug` writes it: `1.2s`, `11.23ms`, `686.2µs`.
    RustDebug,
    /// A plain number.
    Count,
    /// Text.
    Text,
}

/// What has to be known of a value before it may be called a stage's time. The default is a plain value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The queue's time is in it, though it is not the queue's.
    pub includes_queue: bool,
    /// Of a request of several prompts it is the sum over them, so that it may exceed the wall clock.
    pub summed_over_prompts: bool,
    /// It has the queue in it only where the server has a figure of its queue at all.
    pub queue_if_told: bool,
    /// The first token's time is in it, though it is called a time per output token: it is no pace after the first.
    pub includes_prefill: bool,
    /// What other rows of the same carrier leave of this total is forward.
    pub rest_is_forward: bool,
    /// It adds to what other rows say of the same thing; without it, the first row in the table that has a value counts.
    pub adds_up: bool,
}

/// One value that one server reports in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose it is.
    pub server: Server,
    /// Where it stands.
    pub carrier: Carrier,
    /// What it says.
    pub says: Says,
    /// Its unit.
    pub scale: Scale,
    /// What it is rounded to, in nanoseconds; 1 where it is as exact as a clock.
    pub resolution_ns: u32,
    /// What it really means.
    pub flags: Flags,
}

/// A millisecond, in nanoseconds: what whole milliseconds are rounded to.
pub(super) const MS: u32 = 1_000_000;
/// A microsecond, in nanoseconds.
pub(super) const US: u32 = 1_000;

impl Row {
    /// A plain value, as exact as a clock.
    pub(super) const fn new(server: Server, carrier: Carrier, says: Says, scale: Scale) -> Self {
        let flags = Flags {
            includes_queue: false,
            summed_over_prompts: false,
            queue_if_told: false,
            includes_prefill: false,
            rest_is_forward: false,
            adds_up: false,
        };
        Self { server, carrier, says, scale, resolution_ns: 1, flags }
    }

    /// Rounded to so many nanoseconds.
    pub(super) const fn rounded(mut self, resolution_ns: u32) -> Self {
        self.resolution_ns = resolution_ns;
        self
    }

    /// [`Flags::includes_queue`].
    pub(super) const fn includes_queue(mut self) -> Self {
        self.flags.includes_queue = true;
        self
    }

    /// [`Flags::summed_over_prompts`].
    pub(super) const fn summed(mut self) -> Self {
        self.flags.summed_over_prompts = true;
        self
    }

    /// [`Flags::includes_queue`] and [`Flags::queue_if_told`].
    pub(super) const fn includes_queue_if_told(mut self) -> Self {
        (self.flags.includes_queue, self.flags.queue_if_told) = (true, true);
        self
    }

    /// [`Flags::includes_prefill`].
    pub(super) const fn includes_prefill(mut self) -> Self {
        self.flags.includes_prefill = true;
        self
    }

    /// [`Flags::rest_is_forward`].
    pub(super) const fn rest_is_forward(mut self) -> Self {
        self.flags.rest_is_forward = true;
        self
    }

    /// [`Flags::adds_up`].
    pub(super) const fn adds_up(mut self) -> Self {
        self.flags.adds_up = true;
        self
    }
}
