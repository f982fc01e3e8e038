//! Event streams with what must come out of them, written by hand.
