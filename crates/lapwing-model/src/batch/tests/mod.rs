//! Tests of the queue: with threads, on random calls, and under simulated traffic.

mod properties;
mod queue;
mod simulation;
mod simulator;
