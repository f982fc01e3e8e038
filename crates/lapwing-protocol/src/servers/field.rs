//! The row type of the tables of reported fields: where a server reports a value, in which unit, and what it means.

use lapwing_ledger::{Phase, Server, Stage, Unit};

/// Where a server reports a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldLocation {
    /// The body of a response: keys joined by dots, `[]` for any element, in the notation of `protocol::wire`.
    Body(&'static str),
    /// The head or the trailers of a response, name in lower case; in gRPC the metadata.
    Header(&'static str),
    /// A protobuf response: field numbers from the message down.
    Proto(&'static [u32]),
    /// An attribute of the server's span.
    SpanAttribute(&'static str),
    /// A span of this name (`*` for any text); the value is the span's own duration.
    Span(&'static str),
    /// From one event of a span to another: span name (`*`), event, event. The second event may belong to a child span.
    SpanEvents(&'static str, &'static str, &'static str),
    /// A metric family in the server's Prometheus text, counters with their `_total`; for histograms and summaries the mean
    /// between two polls. `{label=value}` after the name selects the series with that label.
    Metric(&'static str),
    /// A value in the server's own statistics, by JSON path in the notation of [`Self::Body`].
    Statistics(&'static str),
}

/// What a reported value measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The duration of a stage.
    Stage(Stage),
    /// The duration of a phase of forward.
    Phase(Phase),
    /// Time to first token.
    FirstToken,
    /// Mean time per output token after the first.
    PerOutputToken,
    /// The whole time in the server. It assigns no time to a stage by itself.
    Total,
    /// An amount of work.
    Work(Unit),
    /// Rows in the batch that the request ran in.
    BatchSize,
    /// Requests that are running.
    Running,
    /// Requests that are waiting.
    Waiting,
    /// Padding in what was executed.
    Padding,
    /// The name of the model that answered.
    Model,
}

/// The stage [`Stage::Queue`].
pub(crate) const QUEUE: Quantity = Quantity::Stage(Stage::Queue);
/// The stage [`Stage::Preprocessing`].
pub(crate) const PREPROCESSING: Quantity = Quantity::Stage(Stage::Preprocessing);
/// The stage [`Stage::Forward`].
pub(crate) const FORWARD: Quantity = Quantity::Stage(Stage::Forward);
/// The stage [`Stage::Postprocessing`].
pub(crate) const POSTPROCESSING: Quantity = Quantity::Stage(Stage::Postprocessing);
/// The phase [`Phase::Prefill`].
pub(crate) const PREFILL: Quantity = Quantity::Phase(Phase::Prefill);
/// The phase [`Phase::Decode`].
pub(crate) const DECODE: Quantity = Quantity::Phase(Phase::Decode);
/// Tokens that the model read.
pub(crate) const INPUT_TOKENS: Quantity = Quantity::Work(Unit::InputToken);
/// Tokens that the model wrote.
pub(crate) const OUTPUT_TOKENS: Quantity = Quantity::Work(Unit::OutputToken);

/// The unit on the wire. It is always written in the table and never inferred from a field's name.
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

/// How a reported value differs from a plain duration or count. By default it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The value includes the queue time, although it is not a queue time.
    pub includes_queue: bool,
    /// For a request with several prompts the value is the sum over the prompts, so it may exceed the wall-clock time.
    pub summed_over_prompts: bool,
    /// The value includes the queue time only if the server reports a queue time at all.
    pub queue_if_reported: bool,
    /// The value is called a time per output token but includes the first token's time, so it is not the pace after the first.
    pub includes_prefill: bool,
    /// This total minus the other values from the same location is forward.
    pub rest_is_forward: bool,
    /// The value is added to other values of the same quantity. Without it the first row of the table that has a value wins.
    pub adds_up: bool,
}

/// One value that one server reports in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedField {
    /// The server that reports it.
    pub server: Server,
    /// Where it is reported.
    pub location: FieldLocation,
    /// What it measures.
    pub quantity: Quantity,
    /// Its unit.
    pub scale: Scale,
    /// The step that the server rounds to, in nanoseconds; 1 if the value has the precision of a clock.
    pub resolution_ns: u32,
    /// How it differs from a plain value.
    pub flags: Flags,
}

/// A millisecond in nanoseconds: the resolution of whole milliseconds.
pub(crate) const MS: u32 = 1_000_000;
/// A microsecond in nanoseconds.
pub(crate) const US: u32 = 1_000;

/// A plain value with the precision of a clock.
pub(crate) const fn row(server: Server, location: FieldLocation, quantity: Quantity, scale: Scale) -> ReportedField {
    let flags = Flags {
        includes_queue: false,
        summed_over_prompts: false,
        queue_if_reported: false,
        includes_prefill: false,
        rest_is_forward: false,
        adds_up: false,
    };
    ReportedField { server, location, quantity, scale, resolution_ns: 1, flags }
}

impl ReportedField {
    /// Sets the resolution, in nanoseconds.
    pub(crate) const fn rounded(mut self, resolution_ns: u32) -> Self {
        self.resolution_ns = resolution_ns;
        self
    }

    /// Sets [`Flags::includes_queue`].
    pub(crate) const fn includes_queue(mut self) -> Self {
        self.flags.includes_queue = true;
        self
    }

    /// Sets [`Flags::summed_over_prompts`].
    pub(crate) const fn summed(mut self) -> Self {
        self.flags.summed_over_prompts = true;
        self
    }

    /// Sets [`Flags::includes_queue`] and [`Flags::queue_if_reported`].
    pub(crate) const fn includes_queue_if_reported(mut self) -> Self {
        (self.flags.includes_queue, self.flags.queue_if_reported) = (true, true);
        self
    }

    /// Sets [`Flags::includes_prefill`].
    pub(crate) const fn includes_prefill(mut self) -> Self {
        self.flags.includes_prefill = true;
        self
    }

    /// Sets [`Flags::rest_is_forward`].
    pub(crate) const fn rest_is_forward(mut self) -> Self {
        self.flags.rest_is_forward = true;
        self
    }

    /// Sets [`Flags::adds_up`].
    pub(crate) const fn adds_up(mut self) -> Self {
        self.flags.adds_up = true;
        self
    }
}
