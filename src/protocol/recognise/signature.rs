//! What the messages of a protocol have in common: which members of a document, of which types, show that it is one.
//!
//! A signature says enough to tell a call from whatever else may be sent to the same path, and no more: extensions, and members
//! that servers disagree about, are not in it.

use super::super::wire::ProtoShape;

/// A set of types of JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(pub(super) u8);

pub(super) const TEXT: Kinds = Kinds(1);
pub(super) const NUMBER: Kinds = Kinds(1 << 1);
pub(super) const BOOL: Kinds = Kinds(1 << 2);
pub(super) const LIST: Kinds = Kinds(1 << 3);
pub(super) const OBJECT: Kinds = Kinds(1 << 4);
pub(super) const ANY: Kinds = Kinds(0b1_1111);

impl Kinds {
    /// How many single types there are.
    pub(super) const COUNT: usize = 5;

    /// These and those.
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a document must have. Paths are those of [`PathStep::parse`](super::super::wire::PathStep::parse); a `null` is absent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
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
pub(super) enum Effect {
    /// Any value but `null`, `false`, 0 and an empty text.
    Set(&'static str),
    /// A zero, as a number or at the beginning of a text.
    Zero(&'static str),
    /// A text that is none of these.
    Other(&'static str, &'static [&'static str]),
}

impl Effect {
    /// Where it stands.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Set(path) | Self::Zero(path) | Self::Other(path, _) => path,
        }
    }
}

/// The JSON documents of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonSignature {
    /// A document has all of one of these.
    pub(super) forms: &'static [&'static [Need]],
    pub(super) effects: &'static [Effect],
}

/// The protobuf messages of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtoSignature {
    /// A message has all of these.
    pub(super) required: &'static [(&'static [u32], ProtoShape)],
    /// A text at this place that is one of these has an effect.
    pub(super) effects: &'static [(&'static [u32], &'static [&'static str])],
}

/// The documents, or messages, of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageSignature {
    /// Of no form: a call is never recognised.
    Unknown,
    Json(JsonSignature),
    Proto(ProtoSignature),
}

/// A protocol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub(super) request: MessageSignature,
    pub(super) answer: MessageSignature,
}

/// Documents of one of these forms.
pub(super) const fn json(forms: &'static [&'static [Need]], effects: &'static [Effect]) -> MessageSignature {
    MessageSignature::Json(JsonSignature { forms, effects })
}

/// Messages that have these fields.
pub(super) const fn proto(
    required: &'static [(&'static [u32], ProtoShape)],
    effects: &'static [(&'static [u32], &'static [&'static str])],
) -> MessageSignature {
    MessageSignature::Proto(ProtoSignature { required, effects })
}
