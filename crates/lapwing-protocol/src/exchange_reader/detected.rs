//! The protocol that a path suggests.

use crate::detect::Family;

/// A protocol or a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// A known protocol.
    Known(Family),
    /// The rule at this index of the configuration.
    Custom(usize),
}

impl Protocol {
    /// The index in lists of known protocols followed by rules.
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Known(family) => family as usize,
            Self::Custom(at) => Family::ALL.len() + at,
        }
    }
}

/// The protocol used on a path: the same for every request to it.
#[derive(Clone, Debug)]
pub struct DetectedProtocol {
    pub(crate) plain: Option<Protocol>,
    /// The protocol if the body is gRPC.
    pub(crate) grpc: Option<Protocol>,
    /// The model that the path names, as a label.
    pub(crate) model: Option<Box<str>>,
}

impl DetectedProtocol {
    pub(crate) const fn is_nothing(&self) -> bool {
        self.plain.is_none() && self.grpc.is_none()
    }
}
