//! What every handler shares: the models, the limits, and what is left of them.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::body::BodyBudget;
use super::catalogue::Catalogue;
use super::limits::Limits;

/// The state that every handler gets.
#[derive(Clone, Debug)]
pub(crate) struct ServerState {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) limits: Limits,
    /// One permit for each request in flight.
    pub(crate) slots: Arc<Semaphore>,
    /// The memory for bodies.
    pub(crate) bodies: Arc<BodyBudget>,
}
