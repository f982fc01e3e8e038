//! Binds an address of the control plane.

use std::net::TcpListener;

use super::start_error::StartError;
use lapwing_net::Sharing;
use lapwing_settings::Bind;

/// Connections that may wait to be accepted by the admin server, and by a receiver. One that finds no room tries again a second later.
const BACKLOG: u32 = 1024;

/// Listens on the address of `key`; a failure says `hint` too.
pub(crate) fn bind(key: &'static str, to: Bind, hint: &'static str) -> Result<TcpListener, StartError> {
    lapwing_net::bind(to.get(), BACKLOG, Sharing::Alone).map_err(|cause| StartError::Bind { key, address: to.get(), cause, hint })
}
