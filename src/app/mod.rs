//! Wiring: who owns which task and thread, start and shutdown.

pub mod demo;
