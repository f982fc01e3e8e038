//! What a watched place in a body means, and the values that stand there.

use super::servers::ReportedField;
use super::wire::ElementMode;
use crate::ledger::{Basis, Unit};

/// No tensor has more dimensions.
const DIMENSIONS: u64 = 64;

/// What a place in a body means. What a family watches is a list of places, each with one of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tag {
    /// The model's name; the first one that is told stands.
    Model,
    /// A list of rows: its length. Anything else there is one row. A text there is text of the input too.
    Rows,
    /// One of several columns of the same rows: the longest counts. Anything but a list is one row.
    Column,
    /// One input or a list of them, as embeddings and completions take them: texts, or token ids, or lists of these.
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
    /// The end of a tensor's dimensions.
    Shape,
    /// Text that the model wrote.
    Content,
    /// The name of an output; `text_output` is one that carries text that the model wrote.
    Output,
    /// The last document of an answer: it is, where this is true or a text.
    Done,
    /// What a document of an answer is called: `response.completed` and its like are the last.
    Event,
    /// How many sequences are asked for.
    Sequences,
    /// Which of several sequences a piece of an answer belongs to, from 0.
    Sequence,
    /// An amount in figures; of several in one document the sum. A list stands for its length.
    Amount(Unit, Basis),
    /// As `Amount`, but a text stands for the tokens that its bytes make.
    Tokens(Unit, Basis),
    /// What a server reports.
    Report(&'static ReportedField),
}

/// A value, from whichever format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TagValue<'a> {
    /// A figure.
    Number(f64),
    /// So many figures of one list.
    Numbers(u64),
    /// A text: its first bytes, and how many it has on the wire.
    Text { head: &'a [u8], bytes: u64 },
    /// A list and its length.
    List(u64),
    /// Keys and values, or a message.
    Group,
    /// A truth value.
    Bool(bool),
}

impl Tag {
    /// How elements of a list are read that have this tag.
    pub(super) const fn elements(self) -> ElementMode {
        match self {
            Self::Input | Self::Text => ElementMode::Counted,
            Self::Dim => ElementMode::First(DIMENSIONS),
            _ => ElementMode::Each,
        }
    }
}

impl TagValue<'_> {
    /// The figure as a count; `None` where it is none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within range, as was just asked")]
    pub(super) fn count(self) -> Option<u64> {
        match self {
            // beyond this, figures in JSON are no longer exact
            Self::Number(n) if (0.0..9.0e15).contains(&n) => Some(n as u64),
            _ => None,
        }
    }
}
