//! The network edge: it accepts, bounds and drains connections, and sends Lapwing's own requests to other servers.
//!
//! - [`accept`] is the accept loop of every listener. It hands each connection over as an [`Accepted`]: a [`Socket`] and its peer.
//!   The data plane serves the connection with its own stack.
//! - [`serve`] is the server for everything else: the admin surfaces, the OTLP receivers, the model server.
//! - [`Client`] sends to one [`Target`]: it polls statistics, forwards telemetry, and sends copies of requests.
//! - [`gunzip`] decompresses with a limit.
//!
//! # Where TLS would be added
//!
//! In one file, `net/tls.rs`: a third variant of [`Socket`], and a [`Listener`] that makes it around an accepted TCP stream. The
//! handshake belongs in the socket's first read or write, which happen in the connection's own task; in [`Listener::accept`] a
//! slow client would hold up every client that connects after it. A client's TLS would be in [`Target::connect`] in the same way.
//!
//! Nothing here knows of stages or model servers.

#![forbid(unsafe_code)]

mod accept;
mod bind;
mod client;
mod descriptors;
mod drain;
mod excerpt;
mod gunzip;
mod local;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod memory;
mod server;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod simulated;
mod socket;
mod target;
mod tasks;
mod throttle;

pub use accept::{AcceptLimits, AcceptObserver, Accepted, Listener, accept};
pub use bind::{Sharing, bind, registered};
pub use client::{Body, Client, ClientError, ClientLimits};
pub use descriptors::{client_connections, control_connections, descriptors, engine_connections, raise_descriptor_limit};
pub use drain::until_stopped;
pub use excerpt::{MAX_ERROR_TEXT, cut_grpc_message, error_text, excerpt};
pub use gunzip::{GunzipError, gunzip, inflate};
pub use local::{LocalAddress, LocalListener, local};
pub use server::{Peer, ServerLimits, serve};
pub use socket::{PeerClosed, Socket};
pub use target::{ConnectError, Target};
pub use tasks::Tasks;
pub use throttle::WarningThrottle;
