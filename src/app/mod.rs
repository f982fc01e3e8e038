//! Wiring: who owns which task and thread, start and shutdown.

pub mod demo;

// until the commands are wired
#[allow(dead_code)]
mod check;
#[allow(dead_code)]
pub mod cli;
