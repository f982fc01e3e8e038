//! How much the server accepts from clients, and how long it waits. Sizes are bytes.

use lapwing_settings::{Period, Size};

/// The limits of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body, compressed or decompressed; a larger one gets 413. Default 64 MiB.
    pub max_body: Size,
    /// The memory for the bodies of all requests, from their first byte until the model has run; a body beyond it gets 503. Default
    /// 256 MiB.
    pub body_budget: Size,
    /// Inference requests at once, from the first byte of the body to the answer; further ones get 429. Default 1024.
    pub max_in_flight: usize,
    /// The timeout of a request that sends none itself, counted from its arrival. Default: none.
    pub timeout: Option<Period>,
    /// The time for a body to arrive. Default 60 s.
    pub body_timeout: Period,
    /// How long a stop waits for requests in flight. Default 10 s.
    pub grace: Period,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: Size::mib(64),
            body_budget: Size::mib(256),
            max_in_flight: 1024,
            timeout: None,
            body_timeout: Period::from_secs(60),
            grace: Period::from_secs(10),
        }
    }
}

impl Limits {
    /// `max_body` as a `usize`.
    pub(crate) fn max_body_bytes(&self) -> usize {
        usize::try_from(self.max_body.get()).unwrap_or(usize::MAX)
    }

    /// `body_budget` as a `usize`, with room for the largest body.
    pub(crate) fn body_budget_bytes(&self) -> usize {
        usize::try_from(self.body_budget.max(self.max_body).get()).unwrap_or(usize::MAX)
    }
}
