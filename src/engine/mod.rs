//! The embedded reference engine.
