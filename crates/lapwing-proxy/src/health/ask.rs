//! Asks a server what it speaks, over connections of their own: with the preface of HTTP/2, the smallest request of HTTP/1.1, and
//! the beginning of TLS. None has an effect on a server that speaks another.

use std::time::Duration;

use http::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::connection::Greeting;
use lapwing_net::Target;

/// The preface of HTTP/2 and an empty `SETTINGS` (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// What a server answers to HTTP/2's preface; over TLS, what it agrees to speak. `None` if it says nothing within `limit`, or takes no
/// connection: then nothing is known.
pub(crate) async fn greeting(target: &Target, limit: Duration) -> Option<Greeting> {
    asked(target, Some(Version::HTTP_2), PREFACE, limit).await
}

/// Whether a server answers HTTP/1.1. `None` as above.
pub(crate) async fn speaks_h1(target: &Target, limit: Duration) -> Option<bool> {
    let request = format!("OPTIONS * HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", target.authority());
    Some(asked(target, Some(Version::HTTP_11), request.as_bytes(), limit).await? == Greeting::Http1)
}

/// Whether a server answers the smallest `ClientHello` of TLS 1.2 in kind: with its own, or with an alert.
pub(crate) async fn speaks_tls(target: &Target, limit: Duration) -> bool {
    if target.is_tls() {
        return false; // it is spoken to in TLS
    }
    let mut hello = vec![22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3];
    hello.extend([7; 32]); // its random number, which nobody uses
    hello.extend([0, 0, 4, 0xc0, 0x2f, 0, 0x2f, 1, 0]); // no session, two ciphers, no compression
    asked(target, None, &hello, limit).await == Some(Greeting::Tls)
}

/// What a server's first bytes are after it was sent `opening`.
async fn asked(target: &Target, version: Option<Version>, opening: &[u8], limit: Duration) -> Option<Greeting> {
    let mut socket = match target.connect(version, limit).await {
        Ok(socket) => socket,
        Err(error) if error.is_about_version() => {
            return Some(if version == Some(Version::HTTP_2) { Greeting::Http1 } else { Greeting::Http2 });
        }
        Err(_) => return None,
    };
    match socket.agreed() {
        Some(Version::HTTP_2) => return Some(Greeting::Http2),
        Some(_) => return Some(Greeting::Http1),
        None => {}
    }
    let answer = async {
        let mut first = Vec::with_capacity(Greeting::READ);
        // one that closes at once may reset what is written
        let _ = socket.write_all(opening).await;
        while Greeting::of(&first, false).is_none() {
            match socket.read_buf(&mut first).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        Greeting::of(&first, true)
    };
    timeout(limit, answer).await.ok()?
}
