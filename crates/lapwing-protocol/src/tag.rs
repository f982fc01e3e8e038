//! The meaning of a watched field, and the values that it can have.

use super::servers::ReportedField;
use super::wire::ElementMode;
use lapwing_ledger::{Basis, Unit};

/// The most dimensions that a tensor may have.
const DIMENSIONS: u64 = 64;

/// The meaning of a watched field. A protocol watches a list of fields, each with one of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tag {
    /// The model's name; the first one wins.
    Model,
    /// A list of rows, counted by its length. Any other value is one row. A text is also input text.
    Rows,
    /// One of several columns of the same rows; the longest counts. Any value but a list is one row.
    Column,
    /// One input or a list of them, as embeddings and completions accept them: texts, token ids, or lists of these.
    Inputs,
    /// An element of such a list.
    Input,
    /// One input, or a pair of texts that are one input, or a list of such pairs.
    Pairs,
    /// Text that the model reads.
    Text,
    /// Text that the model reads again with every row.
    Query,
    /// A dimension of a tensor.
    Dim,
    /// The name of an input tensor; `input_ids` is one of token ids.
    InputName,
    /// The end of an input tensor.
    Tensor,
    /// How long the request may take, in microseconds.
    Timeout,
    /// The name of a parameter of the request, whose value follows.
    ParameterName,
    /// The value of a parameter; that of `timeout` is a [`Self::Timeout`], that of `sequence_id` a [`Self::SequenceId`].
    ParameterValue,
    /// The sequence of requests that this one is of, for which the server keeps something.
    SequenceId,
    /// What the server kept of an earlier call, which this one goes on with.
    Predecessor,
    /// Whether the server is to keep its answer for later calls.
    Stores,
    /// A message of a chat, which is one row, or a chat of several, each of which is one.
    Message,
    /// The document itself: a list is one of rows, if nothing else gives them.
    Records,
    /// Text that the model wrote.
    Content,
    /// Text that the model wrote while it reasoned.
    Reasoning,
    /// Tokens of the answer that the client was not sent, unless text of the reasoning came.
    HiddenTokens,
    /// Tokens of the answer that were never part of its text: those of a prediction that the model rejected.
    RejectedTokens,
    /// A flag of the request that has the server withhold its reasoning if it has this value.
    Withholds(bool),
    /// The type of a block of the answer, which may be thinking that is withheld.
    Block,
    /// The tokens of a piece of the answer, as a list with an element for each.
    PieceTokens,
    /// Text that the model wrote, unless the answer is a stream, in which it repeats what came before.
    WholeContent,
    /// A list of ids of tokens that the model wrote.
    ContentIds,
    /// The name of an output; `text_output` is one that carries text that the model wrote.
    Output,
    /// Marks the last document of an answer, if it is true or a text.
    Done,
    /// The type of a document of an answer: `response.completed` and similar types are the last.
    Event,
    /// How many sequences the request asks for.
    Sequences,
    /// The sequence that a piece of an answer belongs to, from 0.
    Sequence,
    /// A numeric amount; several in one document are added. A list counts as its length.
    Amount(Unit, Basis),
    /// A part of the input tokens, as reported; the parts are added up, and of each the last value counts.
    InputPart(InputPart),
    /// Input and output tokens together. They are the input's where nothing else is reported, on routes that write none.
    TotalTokens,
    /// Seconds of sound that the model hears, as a number or a text.
    AudioSeconds,
    /// What the answer has for each row: the length of the list shows whether a table has a header.
    Predictions,
    /// Like `Amount`, but a text counts as the tokens that its bytes make.
    Tokens(Unit, Basis),
    /// A member that may say that the request failed.
    Error(ErrorField),
    /// A field that a server reports.
    Report(&'static ReportedField),
}

/// The meaning of a member for failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorField {
    /// An error: a text, or `true`.
    Error,
    /// What only an object that is an error has: a message, a code or a type.
    Inside,
    /// Like `Error`, of one row of a list.
    RowError,
    /// Like `Inside`, of one row of a list.
    RowInside,
    /// The end of a row.
    Row,
    /// `object`, which is `error` in errors of vLLM and SGLang.
    Object,
    /// `type`, which is `error` (Anthropic, the Responses API) or the name of an event that reports a failure. An answer that is
    /// `incomplete` reached a limit that the request or the model sets, and is no failure.
    Type,
    /// Why a sequence ended: `error` or `abort`, both by the server's doing.
    Reason,
    /// The status of an answer of the Responses API.
    Status,
    /// `code`, at least 400 in errors of TorchServe, which have a `type` and a `message` too.
    Code,
    /// `message` next to such a code.
    Message,
    /// `errors` of GraphQL and of APIs like it: a failure if there is no `data`.
    Errors,
    /// `data` next to them.
    Data,
    /// `detail` of FastAPI: an error if it is the only member.
    Detail,
    /// Any other member.
    Other,
}

/// A part of the input tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputPart {
    /// Those that were computed.
    Computed,
    /// Those that were taken from a cache.
    CacheRead,
    /// Those that were computed and kept in a cache.
    CacheWrite,
}

/// A value of any format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TagValue<'a> {
    /// A number.
    Number(f64),
    /// Several numbers of one list.
    Numbers(u64),
    /// A text: its first bytes, and its length on the wire in bytes.
    Text { head: &'a [u8], bytes: u64 },
    /// A list and its length.
    List(u64),
    /// An object or a message.
    Group,
    /// A boolean.
    Bool(bool),
}

impl Tag {
    /// How elements of a list with this tag are read.
    pub(crate) const fn elements(self) -> ElementMode {
        match self {
            Self::Input | Self::Text => ElementMode::Counted,
            Self::Dim => ElementMode::First(DIMENSIONS),
            _ => ElementMode::Each,
        }
    }
}

impl TagValue<'_> {
    /// The number as a count; `None` if it is not a count.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within range, as was just asked")]
    pub(crate) fn count(self) -> Option<u64> {
        match self {
            // above this, numbers in JSON are no longer exact
            Self::Number(n) if (0.0..9.0e15).contains(&n) => Some(n as u64),
            _ => None,
        }
    }

    /// A number of seconds, which may be written as a text, in whole milliseconds; `None` if it is none, or longer than a year.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within range, as was just asked")]
    pub(crate) fn milliseconds(self) -> Option<u64> {
        let seconds: f64 = match self {
            Self::Number(n) => n,
            Self::Text { head, .. } => std::str::from_utf8(head).ok()?.trim().parse().ok()?,
            _ => return None,
        };
        (0.0..=31_536_000.0).contains(&seconds).then(|| (seconds * 1e3).round() as u64)
    }
}
