//! The network edge: how connections are accepted, bounded and drained.
//!
//! [`accept`] is the accept loop of every listener. It hands each connection over as an [`Accepted`]: a [`Socket`] and its peer.
//! What is spoken on the connection is the caller's: the data plane serves it with its own stack.
//!
//! # Where TLS would stand
//!
//! In one file, `net/tls.rs`: a third variant of [`Socket`] and a [`Listener`] that makes it around an accepted TCP stream. The
//! handshake belongs in the socket's first read or write, which happen in the connection's own task; in [`Listener::accept`] a
//! slow client would hold up everyone who connects after it. A client's TLS stands in [`Target::connect`] in the same way.
//!
//! Nothing here knows of ledgers, stages or model servers.

mod accept;
mod bind;
mod drain;
mod socket;
mod target;
mod tasks;

pub use accept::{AcceptLimits, Accepted, Listener, accept};
pub use bind::bind;
pub use drain::until_stopped;
pub use socket::Socket;
pub use target::{ConnectError, Target};
pub use tasks::Tasks;
