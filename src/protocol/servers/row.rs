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
    /// From one event of a span to another: span name (`*`), event, event.
    SpanEvents(&'static str, &'static str, &'static str),
    /// A metric family of the server's Prometheus text; of histograms and summaries the mean between two polls.
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

/// What has to be known of a value before it may be called a stage's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The queue's time is in it, though it is not the queue's.
    pub includes_queue: bool,
    /// Of a request of several items it is the mean over them, so that parts do not add up to the total.
    pub batch_mean: bool,
    /// Of a request of several prompts it is the sum over them, so that it may exceed the wall clock.
    pub summed_over_prompts: bool,
    /// It is absent where several answers were asked for (n > 1).
    pub null_for_many: bool,
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
