//! The order in which requests go to model servers that work on few at once.
//!
//! A server's own queue knows neither how much a request asks for nor when it is due. Here is a queue that does. It has no clock of its own
//! and carries nothing: it says which request goes where, and when; so the same code decides for clients' requests and replays recorded ones.
//!
//! - `service`: what a request takes, by its work: a line for each series, and how many an upstream works on at once;
//! - `learn`: how that is learnt from requests that were answered;
//! - `queue`: who waits, who goes next and who is refused; with `fair` between classes and `upstreams` for what runs;
//! - `ghost`: what the queue would have made of requests that passed without it.
//!
//! docs/DISPATCH.md has what users see of it.

mod admission;
mod fair;
mod ghost;
mod lane;
mod learn;
mod queue;
mod service;
mod upstreams;

#[cfg(test)]
mod tests;

pub use ghost::{Ghost, GhostReport, GhostSide};
pub use learn::{Departure, ServiceLearner};
pub use queue::{Ask, Asked, DispatchQueue, Overdue, QueueClass, QueueOrder, QueueSettings, Ticket, TicketState};
pub use service::{NoWindow, Prediction, ServiceLine, ServiceModels, SlotsOf, WorkSeries};
pub use upstreams::{RunId, UpstreamSet};
