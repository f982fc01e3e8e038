//! What the messages of a protocol have in common: which members of a document, of which types, show that it is one.
//!
//! A signature says enough to distinguish a call from anything else that may be sent to the same path, and no more: extensions, and members
//! that servers disagree about, are not in it.

use super::super::wire::ProtoShape;

/// A set of types of JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(pub(crate) u8);

pub(crate) const TEXT: Kinds = Kinds(1);
pub(crate) const NUMBER: Kinds = Kinds(1 << 1);
pub(crate) const BOOL: Kinds = Kinds(1 << 2);
pub(crate) const LIST: Kinds = Kinds(1 << 3);
pub(crate) const OBJECT: Kinds = Kinds(1 << 4);
pub(crate) const ANY: Kinds = Kinds(0b1_1111);

impl Kinds {
    /// How many single types there are.
    pub(crate) const COUNT: usize = 5;

    /// These and those.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a document must have. Paths are those of [`PathStep::parse`](super::super::wire::PathStep::parse); a `null` is absent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// The value is there, and of one of these types wherever it is.
    Has(&'static str, Kinds),
    /// If it is there, it is of one of these types.
    Maybe(&'static str, Kinds),
    /// The list is not empty, and each of its elements has one of these values.
    Each(&'static str, &'static [(&'static str, Kinds)]),
    /// The first of these texts begins with one of those.
    Says(&'static str, &'static [&'static str]),
}

/// What in a request (or an answer) says that the call has an effect beyond its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// Any value but `null`, `false`, 0 and an empty text.
    Set(&'static str),
    /// A zero, as a number or at the beginning of a text.
    Zero(&'static str),
    /// A text that is none of these.
    Other(&'static str, &'static [&'static str]),
}

impl Effect {
    /// Where it is.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Set(path) | Self::Zero(path) | Self::Other(path, _) => path,
        }
    }
}

/// The JSON documents of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonSignature {
    /// A document has all of one of these.
    pub(crate) forms: &'static [&'static [Need]],
    pub(crate) effects: &'static [Effect],
}

/// The protobuf messages of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtoSignature {
    /// A message has all of these.
    pub(crate) required: &'static [(&'static [u32], ProtoShape)],
    /// A text at this place that is one of these has an effect.
    pub(crate) effects: &'static [(&'static [u32], &'static [&'static str])],
}

/// The documents, or messages, of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageSignature {
    /// Of no form: a call is never recognised.
    Unknown,
    Json(JsonSignature),
    Proto(ProtoSignature),
}

/// A protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    pub(crate) request: MessageSignature,
    pub(crate) answer: MessageSignature,
}

/// Documents of one of these forms.
pub(crate) const fn json(forms: &'static [&'static [Need]], effects: &'static [Effect]) -> MessageSignature {
    MessageSignature::Json(JsonSignature { forms, effects })
}

/// Messages that have these fields.
pub(crate) const fn proto(
    required: &'static [(&'static [u32], ProtoShape)],
    effects: &'static [(&'static [u32], &'static [&'static str])],
) -> MessageSignature {
    MessageSignature::Proto(ProtoSignature { required, effects })
}
