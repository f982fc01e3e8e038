//! A request that waits, and one that is at an upstream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::ask::{Overdue, Ticket, TicketState};
use crate::plane::DispatchPlane;
use crate::upstreams::{RunEnd, RunId};
use lapwing_ledger::{Outcome, Stamp};

/// A request that waits. It leaves when this is dropped.
#[derive(Debug)]
pub struct Queued {
    plane: Arc<DispatchPlane>,
    /// `None` once it is known what becomes of it.
    ticket: Option<Ticket>,
}

impl Queued {
    pub(crate) const fn new(plane: Arc<DispatchPlane>, ticket: Ticket) -> Self {
        Self { plane, ticket: Some(ticket) }
    }

    /// Waits until it goes, or waits no longer.
    ///
    /// # Errors
    ///
    /// Why it does not go.
    pub async fn turn(mut self) -> Result<Dispatched, Overdue> {
        let Some(ticket) = self.ticket else { return Err(Overdue::Wait) };
        let until = self.plane.until(ticket);
        let mut timer = pin!(tokio::time::sleep(Duration::from_nanos(until.since(Stamp::now()))));
        let state = poll_fn(|cx| {
            // the timer wakes for the last look
            let _ = timer.as_mut().poll(cx);
            match self.plane.poll(ticket, cx.waker()) {
                TicketState::Waiting => Poll::Pending,
                state => Poll::Ready(state),
            }
        })
        .await;
        self.ticket = None;
        match state {
            TicketState::Go(at, id) => Ok(Dispatched::new(self.plane.clone(), at, id)),
            TicketState::Overdue(why) => Err(why),
            TicketState::Waiting => Err(Overdue::Wait),
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.plane.with((), |queue, now| queue.leave(ticket, now));
        }
    }
}

/// A request's place at an upstream, until this is dropped.
#[derive(Debug)]
pub struct Dispatched {
    plane: Arc<DispatchPlane>,
    at: usize,
    id: RunId,
    how: RunEnd,
}

impl Dispatched {
    pub(crate) const fn new(plane: Arc<DispatchPlane>, at: usize, id: RunId) -> Self {
        Self { plane, at, id, how: RunEnd::Left }
    }

    /// The upstream, by its place.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What it is in the queue.
    pub(crate) const fn id(&self) -> RunId {
        self.id
    }

    /// It ends, and that is how.
    pub fn ended(mut self, outcome: Outcome) {
        self.how = match outcome {
            Outcome::Ok | Outcome::ClientError | Outcome::BodyError => RunEnd::Answered,
            Outcome::ServerError | Outcome::Unreachable | Outcome::Broken | Outcome::TimedOut => RunEnd::Failed,
            Outcome::Rejected | Outcome::Shed | Outcome::Cancelled => RunEnd::Left,
        };
    }

    /// It is a second request that is not sent after all.
    pub fn withdraw(self) {
        self.plane.with((), |queue, _| queue.hedges.withdraw(self.id));
    }

    /// It goes to the upstream at another place, because its own takes no connection.
    pub fn moved(&self, to: usize) {
        self.plane.with((), |queue, now| queue.moved(self.id, to, now));
    }
}

impl Drop for Dispatched {
    fn drop(&mut self) {
        self.plane.with((), |queue, now| queue.end(self.id, self.how, now));
    }
}
