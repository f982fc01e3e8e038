//! A server that is dead, slow, full or restarting: how long requests wait, and when it is used again.

use std::time::{Duration, Instant};

use lapwing_redis::RedisRefusal;
use lapwing_testing::RedisServer;
use serde_json::json;

use crate::running::{Running, client, write};

const DEADLINE: Duration = Duration::from_millis(5);
/// A timer of the runtime is up to 1 ms late; the rest is for a busy machine.
const LATE: Duration = Duration::from_millis(25);

/// Reads so often, one after the other, and returns how many waited. None may wait longer than its deadline.
async fn read_often(running: &Running, times: usize) -> usize {
    let mut waited = 0;
    for _ in 0..times {
        let since = Instant::now();
        let answer = running.client.get(&["lapwing:a"], DEADLINE).await;
        assert!(since.elapsed() < DEADLINE + LATE, "{:?}: {answer:?}", since.elapsed());
        waited += usize::from(answer == Err(RedisRefusal::Late));
    }
    waited
}

#[tokio::test]
async fn nobody_waits_for_a_stopped_server_for_long_and_it_is_used_again() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    running.write("lapwing:a", "one").await;
    server.signal("STOP");
    let waited = read_often(&running, 1_000).await;
    assert!((1..=5).contains(&waited), "{waited} of 1000 waited");
    let counts = running.client.counts();
    assert!(!counts.is_up && counts.breaker_opens == 1 && counts.refused >= 995, "{counts:?}");
    server.signal("CONT");
    running.until_up().await;
    running.until("is not fast again", |client| client.counts().round_trip_ns < 5_000_000).await;
    assert_eq!(running.read("lapwing:a").await.as_deref(), Some("one"));
}

#[tokio::test]
async fn a_server_that_sleeps_costs_a_few_deadlines() {
    let Some(server) = RedisServer::start(&["--enable-debug-command", "yes"]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    let mut sleeping = std::process::Command::new("redis-cli");
    let mut sleeping = sleeping.args(["-p", &server.port.to_string(), "DEBUG", "SLEEP", "1"]).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waited = read_often(&running, 500).await;
    assert!((1..=5).contains(&waited), "{waited} of 500 waited");
    sleeping.wait().unwrap();
    running.until_up().await;
}

#[tokio::test]
async fn a_server_that_restarts_is_found_again() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    for restart in 1..=2 {
        server.kill();
        let waited = read_often(&running, 200).await;
        assert!(waited <= 5, "{waited} waited");
        assert!(running.client.counts().refused >= 195 * restart);
        server.restart();
        running.until_up().await;
        assert_eq!(running.read("lapwing:a").await, None);
        assert_eq!(running.client.counts().connects, 1 + restart);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_waited_for_until_it_comes() {
    // one that ends leaves a port at which nobody listens
    let Some(server) = RedisServer::start(&[]) else { return };
    let port = server.port;
    drop(server);
    let running = client(json!({"url": format!("redis://127.0.0.1:{port}")}));
    running.until("has not tried", |client| client.counts().connect_errors > 0).await;
    assert_eq!(read_often(&running, 100).await, 0);
    assert_eq!(running.client.counts().refused, 100);
    let _server = RedisServer::start_at(port, &[]);
    running.until_up().await;
}

#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_is_not_waited_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let running = client(json!({"url": format!("redis://{}", listener.local_addr().unwrap())}));
    running.until("has not tried", |client| client.counts().connect_errors > 0).await;
    assert_eq!(read_often(&running, 100).await, 0);
}

#[tokio::test]
async fn a_full_server_is_read_and_not_written_to() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    running.write("lapwing:a", "one").await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(running.client.write_behind(write("lapwing:b", "two")));
    running.until("is not refused", |client| client.counts().write_errors == 1).await;
    running.until("takes more", |client| !client.write_behind(write("lapwing:b", "two"))).await;
    assert!(running.client.counts().dropped_writes > 0);
    assert_eq!(running.read("lapwing:a").await.as_deref(), Some("one"), "it is read all the same");
    assert_eq!(running.client.counts().breaker_opens, 0);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    running.until("takes nothing", |client| client.write_behind(write("lapwing:b", "two"))).await;
    running.until("is not written", |client| client.counts().written >= 2).await;
}

#[tokio::test]
async fn the_connection_is_shared_and_answers_are_not_mixed_up() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    for at in 0..100 {
        server.cli(&["SET", &format!("lapwing:{at}"), &format!("value {at}")]);
    }
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..50_usize {
        let client = running.client.clone();
        readers.spawn(async move {
            for round in 0..200 {
                let at = (reader * 7 + round) % 100;
                // some are given up early, whose answers must not become those of others
                let deadline = if round % 5 == 0 { Duration::from_micros(300) } else { Duration::from_secs(1) };
                if let Ok(values) = client.get(&[format!("lapwing:{at}")], deadline).await {
                    assert_eq!(values[0].as_deref(), Some(format!("value {at}").as_bytes()));
                }
            }
        });
    }
    while let Some(reader) = readers.join_next().await {
        reader.unwrap();
    }
    assert!(running.client.counts().reads > 0);
}
