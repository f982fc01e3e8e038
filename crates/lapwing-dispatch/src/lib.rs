//! The order in which requests go to model servers that work on few at once.
//!
//! A server's own queue knows neither how much a request asks for nor when it is due. Here is a queue that does. It carries nothing: it says which
//! request goes where, and when.
//!
//! Without a clock of its own, so that the same code decides for clients' requests and replays recorded ones:
//!
//! - `ask` is what is settled, asked and answered; `service` what a request takes, by its work, and how many an upstream works on at once;
//! - `queue`: who waits, who goes next and who is refused (`admission`); `lane` is those of a class, `fair` divides between classes, `classes`
//!   has them over reloads, `class_counts` what became of theirs; `upstreams` is what runs, `freest` where there is room, and `hedge` says which
//!   of that is sent a second time (`hedges` counts it);
//! - `learn`: how services are learnt from requests that were answered; `ghost`: what the queue would have made of requests that passed.
//!
//! `speeds` tells how fast upstreams work those who choose without the queue; `upstream_config` has the keys `upstreams`, `routes` and
//! `upstream_policy`; `affinity` sends requests with the same key to the same upstream.
//!
//! For a data plane: `config` is the section, `plane` the queue of all workers, `dispatch` that with the settings in force, `waiting` a request that
//! waits or is at an upstream, `second` one that may be sent to another too, `learning` what the control plane does for it.
//!
//! docs/DISPATCH.md has what users see of it.

#![forbid(unsafe_code)]

mod admission;
mod affinity;
mod ask;
mod class_counts;
mod classes;
mod config;
mod dispatch;
mod fair;
mod freest;
mod ghost;
mod hedge;
mod hedges;
mod lane;
mod learn;
mod learning;
mod plane;
mod queue;
mod second;
mod seen;
mod service;
mod speeds;
#[cfg(test)]
mod tests;
mod upstream_config;
mod upstreams;
mod waiting;

pub use affinity::{AFFINITY, Affinity, Home, HomeName, Homes};
pub use ask::{Ask, HedgeSettings, Overdue, QueueClass, QueueOrder, QueueRequest, QueueSettings, Ticket, TicketState};
pub use class_counts::{ClassCounts, WaitTimes};
pub use config::{Config, DispatchClass, DispatchMode, DispatchOrder, DispatchRefusal, HedgeConfig, HedgeMode};
pub use dispatch::{Answered, AskingAccount, Dispatch, Dispatching};
pub use ghost::{Ghost, GhostReport, GhostSide, MissesForeseen};
pub use hedges::{Hedge, HedgeWithheld};
pub use learn::{Departure, DepartureEnd, ServiceLearner};
pub use learning::{DispatchLearning, DispatchSnapshot};
pub use plane::{DispatchPlane, DispatchState, WaitingClass};
pub use queue::DispatchQueue;
pub use second::SecondTurn;
pub use service::{NoWindow, Prediction, RatioQuantiles, ServiceLine, ServiceModels, SlotsOf, WorkSeries};
pub use speeds::UpstreamSpeeds;
pub use upstream_config::{
    MAX_UPSTREAMS, NamedUpstream, PlacementPolicy, ROUTE, UPSTREAM, UpstreamRoute, check_upstreams, names_upstream,
};
pub use upstreams::{RunEnd, RunId, UpstreamSet};
pub use waiting::{Dispatched, Queued};
