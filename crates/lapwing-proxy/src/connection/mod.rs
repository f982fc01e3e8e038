//! One connection, of a client or to the upstream: the metered socket, its deadlines, and its waits for a slow client.
//!
//! Nothing here knows what a request is: the socket's meter calls [`OnFlush`], the client's side calls [`OnRefusal`].

mod body_wait;
mod client_side;
mod client_waits;
mod closing;
mod failure;
mod gathered;
mod greeting;
mod lazy_deadline;
mod meter;
mod metered;
mod opening;
mod quiet_waker;
mod reader;
mod refused_heads;
mod refused_writes;
mod stamps;
mod stream_load;

pub(crate) use body_wait::BodyArrival;
pub(crate) use client_side::{ClientTimeouts, OnRefusal};
pub(crate) use client_waits::ClientWaits;
pub(crate) use closing::OnFlush;
pub(crate) use failure::reason;
pub(crate) use greeting::Greeting;
pub(crate) use lazy_deadline::LazyDeadline;
pub(crate) use meter::SocketMeter;
pub(crate) use metered::MeteredSocket;
pub(crate) use opening::Opening;
pub(crate) use quiet_waker::QuietWaker;
pub(crate) use stamps::ConnectionStamps;
pub(crate) use stream_load::{StreamLoad, StreamPlace, UploadWait};
