//! One step of a decoder: how far it came, or why it goes no further.

/// Why a body is not decoded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not in the coding that its head names.
    #[error("not in the coding that the head names, or damaged")]
    Corrupt,
    /// It unpacks to far more than came.
    #[error("unpacks to too much for its size")]
    TooLarge,
    /// It needs a larger window than a decoder may keep, or all decoders hold too much already.
    #[error("needs more memory than decoders may hold")]
    Memory,
}

/// How far one step of a decoder came, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) read: usize,
    pub(crate) written: usize,
}
