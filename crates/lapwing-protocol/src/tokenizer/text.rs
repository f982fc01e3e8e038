//! What goes into a tokenizer, and what comes out.

/// One input for the tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenizerInput<'v> {
    /// A text.
    One(&'v str),
    /// Two texts that the model reads together, such as a query and a document, or a premise and a hypothesis.
    Pair(&'v str, &'v str),
}

/// A text as tokens, in order; special tokens are among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedText {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The segment of each, as many as there are tokens.
    pub type_ids: Vec<u32>,
}
