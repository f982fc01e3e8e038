//! Decoded outputs of the primary and a candidate against each other.
