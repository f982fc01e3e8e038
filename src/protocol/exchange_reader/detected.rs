//! The protocol that a path suggests.

use crate::protocol::detect::Family;

/// A protocol or a rule.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol) enum Protocol {
    /// A known protocol.
    Known(Family),
    /// The rule at this index of the configuration.
    Custom(usize),
}

impl Protocol {
    /// The index in lists of known protocols followed by rules.
    pub(super) const fn place(self) -> usize {
        match self {
            Self::Known(family) => family as usize,
            Self::Custom(at) => Family::ALL.len() + at,
        }
    }
}

/// The protocol used on a path: the same for every request to it.
#[derive(Clone, Debug)]
pub struct DetectedProtocol {
    pub(in crate::protocol) plain: Option<Protocol>,
    /// The protocol if the body is gRPC.
    pub(in crate::protocol) grpc: Option<Protocol>,
    /// The model that the path names, as a label.
    pub(super) model: Option<Box<str>>,
}

impl DetectedProtocol {
    pub(super) const fn is_nothing(&self) -> bool {
        self.plain.is_none() && self.grpc.is_none()
    }
}
