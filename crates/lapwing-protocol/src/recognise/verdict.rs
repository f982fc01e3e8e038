//! What a body is, as far as its protocol is concerned.

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// A message of the protocol.
    Yes,
    /// A message of the protocol that has an effect beyond the answer: by the member of this name.
    Effect(&'static str),
    /// An error, which says nothing of the route.
    Error,
    /// Anything else.
    No,
}
