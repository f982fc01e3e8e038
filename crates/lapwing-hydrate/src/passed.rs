//! Why requests that a rule takes pass as they came.

/// Why a request passes as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HydratePassed {
    /// It could not be held until its body had come.
    Unheld,
    /// Its body is compressed, or has a digest or a signature, which would no longer be right.
    Coded,
    /// Its tensors are binary, behind the JSON.
    Binary,
    /// Its body is no JSON of the Open Inference Protocol and none with `instances`, or can be read in two ways.
    Format,
    /// It names no entity where the rule looks, or not one for each row.
    Entity,
    /// It has features already.
    Present,
    /// It has more rows, or would have more numbers, than are written.
    TooMany,
}
