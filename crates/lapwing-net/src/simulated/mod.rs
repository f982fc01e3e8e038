//! Tasks and sockets whose every step a seed chooses, for the model of wake-ups: the real code of both ends runs on them.
//!
//! A task is polled only if its waker was called since its last turn. Which of those that may run comes next, how much of its turn
//! (`tokio::task::coop`) a task has, how many bytes a socket takes and gives, when bytes arrive and when the runtime notices: all of
//! it is random. A case that comes to rest before its end has lost a wake-up, for no time passes: no timer can make up for it.

mod random;
mod scheduler;
mod wire;

pub use random::draw;
pub use scheduler::{Progress, Simulation, is_running, spawn};
pub use wire::{SimulatedAddress, SimulatedListener, SimulatedStream, describe, listen, pair};
