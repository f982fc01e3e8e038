//! A request that waits, and one that is at an upstream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::DispatchPlane;
use crate::in_flight::UpstreamPlace;
use lapwing_dispatch::{Overdue, RunId, Ticket, TicketState};
use lapwing_ledger::Stamp;

/// A request that waits. It leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Queued {
    plane: Arc<DispatchPlane>,
    /// `None` once it is known what becomes of it.
    ticket: Option<Ticket>,
}

impl Queued {
    pub(crate) const fn new(plane: Arc<DispatchPlane>, ticket: Ticket) -> Self {
        Self { plane, ticket: Some(ticket) }
    }

    /// Waits until it goes, or waits no longer.
    pub(crate) async fn turn(mut self) -> Result<Dispatched, Overdue> {
        let Some(ticket) = self.ticket else { return Err(Overdue::Wait) };
        let until = self.plane.queue.lock().until(ticket).unwrap_or_default();
        let mut timer = pin!(tokio::time::sleep(Duration::from_nanos(until.since(Stamp::now()))));
        let state = poll_fn(|cx| {
            // the timer wakes for the last look
            let _ = timer.as_mut().poll(cx);
            match self.plane.with(|queue| queue.poll(ticket, Stamp::now(), || cx.waker().clone())) {
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
            self.plane.with(|queue| queue.leave(ticket, Stamp::now()));
        }
    }
}

/// A request's place at an upstream, until this is dropped.
#[derive(Debug)]
pub(crate) struct Dispatched {
    plane: Arc<DispatchPlane>,
    at: usize,
    id: RunId,
}

impl Dispatched {
    pub(crate) const fn new(plane: Arc<DispatchPlane>, at: usize, id: RunId) -> Self {
        Self { plane, at, id }
    }

    /// The upstream, by its place.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }
}

impl UpstreamPlace for Dispatched {
    fn moved(&self, to: usize) {
        self.plane.with(|queue| queue.moved(self.id, to, Stamp::now()));
    }
}

impl Drop for Dispatched {
    fn drop(&mut self) {
        self.plane.with(|queue| queue.end(self.id, Stamp::now()));
    }
}
