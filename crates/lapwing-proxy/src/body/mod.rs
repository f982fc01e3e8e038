//! Bodies on their way: the request's to the upstream, the response's to the client. Both pass frame by frame.
//!
//! Nothing here knows how the upstream is reached: a response's body drives a [`Drive`].

mod beside;
mod broken;
pub(crate) mod capture;
mod chunk;
mod continue_gate;
mod delivery;
mod drain;
mod drive;
mod h2_source;
mod held;
mod own;
mod repeat;
mod request;
mod rewrite;
mod split_write;
mod tracked_request;
mod upload_watch;
mod upstream;

#[cfg(test)]
mod tests;

pub(crate) use beside::{Beside, GoesOn};
pub(crate) use continue_gate::ContinueGate;
pub(crate) use delivery::ResponseBody;
pub(crate) use drain::MAX_DRAINED_BYTES;
pub(crate) use drive::Drive;
pub(crate) use h2_source::{H2Source, Rest};
pub(crate) use held::{HeldRequest, hold, passes_unheld};
pub(crate) use repeat::{KeptRequest, SecondRequest};
pub(crate) use request::{RequestBody, RequestBodyError};
pub(crate) use rewrite::{MAX_GATHERED_BYTES, ResponseRewrite};
pub(crate) use tracked_request::{AccountedRequest, AccountedResponse, TrackedRequest};
pub(crate) use upload_watch::slow_upload;
