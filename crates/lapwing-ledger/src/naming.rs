//! Names that an exchange brings, and what proves that they are real: clients may send any name, so only the upstream's answer makes
//! one a series.

/// What the upstream's answer says about the request's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameProof {
    /// Nothing: no answer, or one that may mean that there is no such route or model.
    #[default]
    Unproven,
    /// They are real if the answer had content: a gRPC call whose status has not come.
    WithContent,
    /// They are real.
    Proven,
}

impl NameProof {
    /// The proof in a status of HTTP: 2xx and 5xx, and 101, which an upstream sends only for a route that it upgrades.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            101 | 200..300 | 500..600 => Self::Proven,
            _ => Self::Unproven,
        }
    }

    /// The proof in a gRPC status: none in codes that blame the caller, such as `INVALID_ARGUMENT` (3) and `NOT_FOUND` (5), and in
    /// `UNIMPLEMENTED` (12), with which servers answer unknown methods.
    #[must_use]
    pub const fn of_grpc(code: u32) -> Self {
        match code {
            1 | 3 | 5 | 6 | 7 | 9 | 11 | 12 | 16 => Self::Unproven,
            _ => Self::Proven,
        }
    }
}

/// Names that were in no table when the request came. Each is a label's text, so it has a bounded length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewNames {
    /// The route, if it is new.
    pub route: Option<Box<str>>,
    /// The model, if it is new.
    pub model: Option<Box<str>>,
}
