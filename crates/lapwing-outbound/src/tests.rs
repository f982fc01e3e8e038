//! The whole pass between real sockets: bytes, ends, and a store that is slow, stopped or not there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{Downstream, Downstreams, OutboundListener, serve};
use lapwing_metrics::Counters;
use lapwing_net::{BoundListener, Sharing, Target, bind};

const SOON: Duration = Duration::from_secs(20);

/// Runs `test` with the address of a listener that goes to `store`, what is counted, and what stops it.
fn with<F: Future<Output = ()>>(
    kind: &str,
    store: impl Into<String>,
    test: impl FnOnce(String, Downstreams, CancellationToken) -> F,
) {
    let store = store.into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let scheme = if kind.starts_with("redis") { "redis" } else { "http" };
        let cache = match kind.strip_suffix(" cached").unwrap_or_default() {
            "redis" => r#", "cache": {"mode": "on", "prefixes": [""]}"#,
            "http" => r#", "cache": {"mode": "on", "paths": ["*"]}"#,
            _ => "",
        };
        let kind = kind.trim_end_matches(" cached");
        let text =
            format!(r#"[{{"name": "store", "listen": "127.0.0.1:1", "to": "{scheme}://{store}", "kind": "{kind}"{cache}}}]"#);
        let config: Vec<Downstream> = serde_json::from_str(&text).unwrap();
        let all = Downstreams::of(&config, &Arc::new(Counters::default())).unwrap();
        let listener = BoundListener::from(bind("127.0.0.1:0".parse().unwrap(), 64, Sharing::Alone).unwrap());
        let (address, stop) = (listener.local_addr().unwrap().to_string(), CancellationToken::new());
        let listeners = vec![OutboundListener { listener, target: Target::Tcp(store) }];
        let serving = serve(listeners, all.clone(), stop.clone());
        let testing = async {
            timeout(SOON, test(address, all, stop.clone())).await.unwrap();
            stop.cancel();
        };
        let (served, ()) = tokio::join!(serving, testing);
        served.unwrap();
    });
}

/// A listener that plays the store.
fn store() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn accepted(listener: std::net::TcpListener) -> (TcpListener, TcpStream) {
    let listener = TcpListener::from_std(listener).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    (listener, stream)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Both directions at once, in pieces of any size, whatever the bytes.
    #[test]
    fn any_bytes_pass_unchanged_both_ways(
        kind in prop::sample::select(vec!["redis", "http", "grpc", "redis cached", "http cached"]),
        sent in prop::collection::vec(prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n123PING".to_vec())], 1..3000), 0..8),
        answered in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3000), 0..8),
        large in prop::option::of(100_000..900_000_usize),
    ) {
        let (listener, address) = store();
        let mut sent = sent;
        sent.extend(large.map(|length| vec![b'x'; length]));
        with(kind, address, |address, all, _| async move {
            let mut client = TcpStream::connect(address).await.unwrap();
            let (_listener, mut server) = accepted(listener).await;
            let (mut from_client, mut to_client) = server.split();
            let (mut from_server, mut to_server) = client.split();
            let write_all = async |pieces: &[Vec<u8>], to: &mut tokio::net::tcp::WriteHalf<'_>| {
                for piece in pieces {
                    to.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                to.shutdown().await.unwrap();
            };
            let read_all = async |from: &mut tokio::net::tcp::ReadHalf<'_>| {
                let mut all = Vec::new();
                from.read_to_end(&mut all).await.unwrap();
                all
            };
            let (came, back, (), ()) = tokio::join!(
                read_all(&mut from_client),
                read_all(&mut from_server),
                write_all(&sent, &mut to_server),
                write_all(&answered, &mut to_client),
            );
            assert!(came == sent.concat() && back == answered.concat());
            let figures = all.list[0].figures.lock();
            assert_eq!((figures.bytes_sent, figures.bytes_received), (came.len() as u64, back.len() as u64));
        });
    }
}

#[test]
fn a_store_that_is_not_there_is_a_closed_connection_at_once() {
    let (listener, address) = store();
    drop(listener);
    with("redis", address, |address, all, _| async move {
        let mut client = TcpStream::connect(address).await.unwrap();
        let read = client.read_u8().await;
        assert!(read.is_err(), "{read:?}");
        assert_eq!(all.list[0].figures.lock().connects_failed, 1);
    });
}

#[test]
fn a_store_that_ends_ends_the_clients_connection_and_cuts_its_call() {
    let (listener, address) = store();
    with("redis", address, |address, all, _| async move {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET a\r\n").await.unwrap();
        let (_listener, mut server) = accepted(listener).await;
        let mut asked = [0; 7];
        server.read_exact(&mut asked).await.unwrap();
        drop(server);
        assert_eq!(client.read(&mut asked).await.unwrap_or(0), 0);
        drop(client);
        while all.views()[0].json()["connections_open"] != 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let shown = all.views()[0].json();
        assert_eq!(
            (&shown["cut"], &shown["by_name"]["GET"]["cut"], &shown["waits"]["outside"]["count"]),
            (&1.into(), &1.into(), &1.into())
        );
    });
}

#[test]
fn a_client_that_gives_up_on_a_stopped_store_is_not_held() {
    let (listener, address) = store();
    with("redis", address, |address, all, _| async move {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET a\r\n").await.unwrap();
        let waited = timeout(Duration::from_millis(50), client.read_u8()).await;
        assert!(waited.is_err(), "nothing answers");
        drop(client);
        // the store, which has stopped, sees that the client has gone once it goes on
        let (_listener, mut server) = accepted(listener).await;
        let mut all_sent = Vec::new();
        server.read_to_end(&mut all_sent).await.unwrap();
        assert_eq!(all_sent, b"GET a\r\n");
        assert_eq!(all.views()[0].json()["connects_failed"], 0);
    });
}

#[test]
fn a_client_that_does_not_read_stops_the_store_and_nothing_is_gathered() {
    let (listener, address) = store();
    with("redis", address, |address, all, _| async move {
        let client = TcpStream::connect(address).await.unwrap();
        let (_listener, mut server) = accepted(listener).await;
        let piece = vec![b'+'; 1 << 20];
        let mut written = 0;
        while let Ok(sent) = timeout(Duration::from_millis(300), server.write(&piece)).await {
            written += sent.unwrap();
        }
        // what systems keep for sockets, and one read
        assert!(written < 64 << 20, "{written}");
        let received = all.list[0].figures.lock().bytes_received;
        assert!(received > 0 && received <= written as u64);
        drop(client);
    });
}

#[test]
fn a_stop_lets_an_answer_arrive_and_closes_what_stands_still() {
    let (listener, address) = store();
    with("redis", address, |address, _, stop| async move {
        let mut idle = TcpStream::connect(&address).await.unwrap();
        let (listener, _still) = accepted(listener).await;
        let mut busy = TcpStream::connect(&address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        busy.write_all(b"GET a\r\n").await.unwrap();
        let mut asked = [0; 7];
        server.read_exact(&mut asked).await.unwrap();
        stop.cancel();
        assert_eq!(idle.read(&mut asked).await.unwrap_or(0), 0);
        server.write_all(b"$1\r\nx\r\n").await.unwrap();
        busy.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"$1\r\nx\r\n");
        assert_eq!(busy.read(&mut asked).await.unwrap_or(0), 0);
        assert!(TcpStream::connect(&address).await.is_err(), "nobody listens any more");
    });
}
