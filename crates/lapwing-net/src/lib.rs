//! The network edge: it accepts, bounds and drains connections, and sends Lapwing's own requests to other servers.
//!
//! - [`accept`] is the accept loop of every listener. It hands each connection over as an [`Accepted`]: a [`Socket`] and its peer.
//!   The data plane serves the connection with its own stack.
//! - [`serve`] is the server for everything else: the admin surfaces, the OTLP receivers, the model server.
//! - [`Client`] sends to one [`Target`]: it polls statistics, forwards telemetry, and sends copies of requests.
//!
//! It never reads what a connection carries: it knows no stage, no protocol and no model server.
//!
//! ```
//! use lapwing_metrics::Counters;
//! use lapwing_net::{AcceptLimits, Accepted, BoundListener, Sharing, Tasks, accept, bind};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = BoundListener::from(bind("127.0.0.1:0".parse()?, 8, Sharing::Alone)?);
//! let mut client = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
//! let listener = listener.registered()?;
//! let (tasks, stop, counters) = (Tasks::default(), tokio_util::sync::CancellationToken::new(), Counters::default());
//! let greet = |mut accepted: Accepted| async move {
//!     let _ = accepted.socket.write_all(b"hello").await;
//! };
//! let mut text = String::new();
//! tokio::select! {
//!     () = accept(listener, AcceptLimits::default(), &tasks, &stop, &counters, greet) => {}
//!     read = client.read_to_string(&mut text) => assert_eq!((read?, text.as_str()), (5, "hello")),
//! }
//! tasks.finished().await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod accept;
mod bind;
mod client;
mod descriptors;
mod drain;
mod excerpt;
mod listener;
mod local;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod memory;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod memory_tls;
mod peer_closed;
mod race;
mod redirect;
mod server;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod simulated;
mod socket;
mod target;
mod tasks;
mod throttle;
mod tls;

pub use accept::{AcceptLimits, AcceptObserver, Accepted, accept};
pub use bind::{Sharing, bind};
pub use client::{Body, Client, ClientError, ClientLimits};
pub use descriptors::{
    client_connections, clients_within, control_connections, descriptors, descriptors_for, engine_connections,
    outbound_connections, raise_descriptor_limit,
};
pub use drain::until_stopped;
pub use excerpt::{MAX_ERROR_TEXT, cut_grpc_message, error_text, excerpt};
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use listener::MemoryTlsListener;
pub use listener::{BoundListener, Listener, RegisteredListener};
pub use local::{LocalAddress, LocalListener, local};
pub use peer_closed::PeerClosed;
pub use redirect::{REDIRECT_TABLE, end_redirect, redirect};
pub use server::{Peer, ServerLimits, serve};
pub use socket::Socket;
pub use target::{ConnectError, Target, TlsTo};
pub use tasks::Tasks;
pub use throttle::WarningThrottle;
pub use tls::{ClientIdentity, ServerIdentity, Speaks, TlsStream, Validity};
