//! TLS 1.2 and 1.3 by rustls with the cryptography of `ring`, without early data (0-RTT).
//!
//! An identity ([`ServerIdentity`], [`ClientIdentity`]) is what one end shows and asks for. It is made of files, and is replaced as a whole
//! when they change: a connection keeps what it began with. [`TlsStream`] is a stream over it.

mod client;
mod files;
mod server;
mod stream;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::ClientIdentity;
pub use files::Validity;
pub use server::{ServerIdentity, Speaks};
pub use stream::TlsStream;
pub(crate) use wire::Below;

/// The names of HTTP/2 and HTTP/1.1 in ALPN (RFC 7301, RFC 9113 3.2).
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The cryptography of every connection.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
