//! Against the sockets of this machine, and against bytes that make no sense.

use std::io::{ErrorKind, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;

use lapwing_testing::not_run;

use super::response::{Progress, TcpSocket, read};
use super::sockets::{PortSide, tcp_sockets};
use super::state::TcpState;

/// The sockets that the kernel knows; a sandbox may forbid netlink.
fn sockets_of(port: PortSide) -> Option<Vec<TcpSocket>> {
    match tcp_sockets(port) {
        Ok(sockets) => Some(sockets),
        Err(refused) => {
            not_run(&format!("the kernel does not say: {refused}"));
            None
        }
    }
}

#[test]
fn both_sides_of_a_connection_are_found_by_port_and_no_other_is() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let _unrelated = TcpStream::connect(other.local_addr().unwrap()).unwrap();
    let (Some(served), Some(asked)) = (sockets_of(PortSide::Local(port)), sockets_of(PortSide::Peer(port))) else { return };
    let ends = |sockets: &[TcpSocket]| sockets.iter().map(|socket| (socket.local, socket.peer)).collect::<Vec<_>>();
    assert_eq!(ends(&served), [(server.local_addr().unwrap(), server.peer_addr().unwrap())]);
    assert_eq!(ends(&asked), [(client.local_addr().unwrap(), client.peer_addr().unwrap())]);
    assert!(asked[0].rtt_ns > 0, "{asked:?}");
}

#[test]
fn sockets_of_ipv6_are_found() {
    let listener = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(listener) => listener,
        Err(none) => return not_run(&format!("this machine has no IPv6: {none}")),
    };
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let Some(sockets) = sockets_of(PortSide::Peer(address.port())) else { return };
    assert_eq!(sockets.iter().map(|socket| socket.local).collect::<Vec<_>>(), [client.local_addr().unwrap()]);
}

#[test]
fn a_peer_that_does_not_read_is_seen_as_a_full_receive_window() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _deaf = listener.accept().unwrap();
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    // until the peer's buffer and the own one have been full for a while
    for _ in 0..400 {
        match client.write(&[0; 64 * 1024]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    let Some(sockets) = sockets_of(PortSide::Peer(listener.local_addr().unwrap().port())) else { return };
    let state = TcpState::of(&sockets);
    println!("{sent} bytes: {state:?}");
    assert!(sent > 0 && state.sockets == 1 && state.busy_ns > 0, "{sockets:?}");
    assert!(state.receive_window_limited_share > 0.5, "{state:?}");
}

#[test]
fn no_sockets_have_no_figures() {
    assert_eq!(TcpState::of(&[]), TcpState::default());
}

#[test]
fn bytes_that_make_no_sense_end_the_reading() {
    let mut sockets = Vec::new();
    for length in 0..200_usize {
        for filler in [0_u8, 1, 20, 255] {
            let mut bytes = vec![filler; length];
            for (at, byte) in (length as u32).to_ne_bytes().into_iter().enumerate().take(length) {
                bytes[at] = byte;
            }
            let _ = read(&bytes, 8, &mut sockets);
        }
    }
    assert!(sockets.is_empty());
    assert_eq!(read(&[], 8, &mut sockets).unwrap(), Progress::More);
    let mut refused = 20_u32.to_ne_bytes().to_vec();
    refused.extend(2_u16.to_ne_bytes());
    refused.extend([0; 10]);
    refused.extend((-1_i32).to_ne_bytes());
    assert_eq!(read(&refused, 8, &mut sockets).unwrap_err().raw_os_error(), Some(1));
}
