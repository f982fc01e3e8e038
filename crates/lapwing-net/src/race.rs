//! Connects to a host of several addresses: each connection begins with one of them at random, so that all of a headless service are used,
//! and the other addresses are tried while one is silent (RFC 8305).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

/// How long an attempt is waited for before the next begins beside it (RFC 8305, 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How many addresses of a host are tried for a connection.
const MAX_ADDRESSES: usize = 32;

/// Connects to `host:port`. The name is resolved anew.
///
/// # Errors
///
/// The name's, if it has no address; else that of the last attempt.
pub(crate) async fn connect(authority: &str) -> io::Result<TcpStream> {
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return TcpStream::connect(address).await;
    }
    let found: Vec<_> = lookup_host(authority).await?.take(MAX_ADDRESSES).collect();
    // a count that all hosts share would lead two that take turns to the same address each
    let begin = if found.len() > 1 { rand::random_range(0..found.len()) } else { 0 };
    race(in_order(&found, begin)).await
}

/// The addresses in the order in which they are tried: the families by turns, that of the first address first; each family from its
/// address number `begin` on, round and round.
fn in_order(found: &[SocketAddr], begin: usize) -> VecDeque<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let [first, second] = [first_is_v6, !first_is_v6].map(|is_v6| {
        let mut family: Vec<_> = found.iter().copied().filter(|address| address.is_ipv6() == is_v6).collect();
        family.dedup();
        let first = begin.checked_rem(family.len()).unwrap_or(0);
        family.rotate_left(first);
        family
    });
    let longest = first.len().max(second.len());
    (0..longest).flat_map(|at| [first.get(at), second.get(at)]).flatten().copied().collect()
}

/// The first connection to one of `addresses`. The next attempt begins when one has failed, or takes longer than [`ATTEMPT_DELAY`].
async fn race(mut addresses: VecDeque<SocketAddr>) -> io::Result<TcpStream> {
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        attempts.extend(addresses.pop_front().map(TcpStream::connect));
        let ended = if addresses.is_empty() {
            attempts.next().await
        } else {
            tokio::select! {
                ended = attempts.next() => ended,
                () = sleep(ATTEMPT_DELAY) => continue,
            }
        };
        match ended {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None if addresses.is_empty() => return Err(last),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::net::TcpListener;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_and_each_moves_on() {
        let found = addresses(&["[2001:db8::1]:1", "[2001:db8::2]:1", "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]);
        let order = |turn| in_order(&found, turn).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(order(0), "[2001:db8::1]:1 10.0.0.1:1 [2001:db8::2]:1 10.0.0.2:1 10.0.0.3:1");
        assert_eq!(order(1), "[2001:db8::2]:1 10.0.0.2:1 [2001:db8::1]:1 10.0.0.3:1 10.0.0.1:1");
        assert_eq!(in_order(&[], 7), []);
        let firsts: BTreeSet<_> = (0..3).map(|turn| in_order(&found[2..], turn)[0]).collect();
        assert_eq!(firsts.len(), 3, "all of a headless service are used");
    }

    #[tokio::test]
    async fn what_refuses_or_is_silent_costs_the_connection_nothing_but_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        // of TEST-NET-1 (RFC 5737), which nobody routes: it is silent, or unreachable at once
        let silent: SocketAddr = "192.0.2.1:9".parse().unwrap();
        for order in [vec![there], vec![refusing, there], vec![silent, there], vec![silent, refusing, there]] {
            let stream = race(order.into()).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), there);
        }
        assert_eq!(race([refusing].into()).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(race(VecDeque::new()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_name_of_both_families_reaches_a_server_of_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for _ in 0..4 {
            connect(&format!("localhost:{port}")).await.unwrap();
        }
        assert!(connect("no-such-host.invalid:1").await.is_err());
    }
}
