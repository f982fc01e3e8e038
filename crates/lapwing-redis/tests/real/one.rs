//! One server: values, pipelines, users, sockets.

use std::time::Duration;

use lapwing_redis::{RedisPipeline, RedisRefusal, RedisValue};
use lapwing_testing::RedisServer;
use serde_json::json;

use crate::running::{DEADLINE, client, write};

#[tokio::test]
async fn values_are_written_behind_and_read_in_one_round_trip() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    assert_eq!(running.read("lapwing:a").await, None);
    running.write("lapwing:a", "one").await;
    running.write("lapwing:b", "\0two").await;
    let values = running.client.get(&["lapwing:b", "lapwing:c", "lapwing:a"], DEADLINE).await.unwrap();
    assert_eq!(values, [Some("\0two".into()), None, Some("one".into())]);
    let left: u64 = server.cli(&["PTTL", "lapwing:a"]).trim().parse().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    let counts = running.client.counts();
    assert_eq!((counts.hits, counts.misses, counts.reads, counts.written, counts.connects), (2, 2, 2, 2, 1));
    assert_eq!((counts.errors, counts.timeouts, counts.refused, counts.dropped_writes, counts.queued), (0, 0, 0, 0, 0));
    assert!((1..50_000_000).contains(&counts.round_trip_ns));
}

#[tokio::test]
async fn commands_run_together_and_an_error_of_one_is_its_answer() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    server.cli(&["HSET", "user:7", "age", "41", "city", "Bergen"]);
    let mut commands = RedisPipeline::new();
    commands.cmd("HMGET").arg("user:7").arg("age").arg("height").arg("city");
    commands.cmd("LLEN").arg("user:7");
    let answers = running.client.run(&commands, DEADLINE).await.unwrap();
    let text = |text: &str| RedisValue::BulkString(text.into());
    assert_eq!(answers[0], RedisValue::Array(vec![text("41"), RedisValue::Nil, text("Bergen")]));
    assert!(matches!(&answers[1], RedisValue::ServerError(error) if error.code() == "WRONGTYPE"), "{answers:?}");
    assert_eq!(running.client.run(&RedisPipeline::new(), DEADLINE).await, Ok(Vec::new()));
    assert_eq!(running.client.counts().errors, 0);
}

#[tokio::test]
async fn a_user_reads_what_it_may_and_a_wrong_password_is_not_shown() {
    let Some(server) = RedisServer::start(&[]) else { return };
    server.cli(&["ACL", "SETUSER", "lapwing", "on", ">correct-horse", "~lapwing:*", "+mget", "+set"]);
    server.cli(&["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://lapwing@127.0.0.1:{}", server.port);
    let running = client(json!({"url": url, "password_file": server.file("password", "correct-horse\n")}));
    running.until_up().await;
    running.write("lapwing:a", "one").await;
    assert_eq!(running.read("lapwing:a").await.as_deref(), Some("one"));
    let refused = running.client.get(&["other:a"], DEADLINE).await.unwrap_err();
    assert_eq!(refused, RedisRefusal::Failed("server error (NOPERM)".to_owned()));

    let wrong = client(json!({"url": url, "password_file": server.file("wrong", "hunter2")}));
    wrong.until("is not refused", |client| client.counts().connect_errors > 0).await;
    assert_eq!(wrong.client.get(&["lapwing:a"], DEADLINE).await, Err(RedisRefusal::Away));
    assert!(!format!("{:?}", wrong.client).contains("hunter2"));
}

#[tokio::test]
async fn a_new_password_needs_no_restart() {
    let Some(server) = RedisServer::start(&["--requirepass", "first"]) else { return };
    let running = client(json!({"url": server.url(), "password_file": server.file("password", "second")}));
    running.until("is not refused", |client| client.counts().connect_errors > 0).await;
    server.file("password", "first");
    running.until_up().await;
}

#[tokio::test]
async fn a_socket_and_a_database_are_used() {
    let Some(server) = RedisServer::start(&["--unixsocket", "FOLDER/socket"]) else { return };
    let running = client(json!({"url": format!("unix:{}/socket", server.folder.path().display())}));
    running.until_up().await;
    running.write("lapwing:a", "one").await;
    assert_eq!(server.cli(&["GET", "lapwing:a"]).trim(), "one");
    let other = client(json!({"url": format!("{}/3", server.url())}));
    other.until_up().await;
    assert_eq!(other.read("lapwing:a").await, None);
    other.write("lapwing:a", "three").await;
    assert_eq!(server.cli(&["-n", "3", "GET", "lapwing:a"]).trim(), "three");
}

#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    // the background has not run yet: this test is its thread
    let taken = (0..20).filter(|at| running.client.write_behind(write(&format!("lapwing:{at}"), "x"))).count();
    let counts = running.client.counts();
    assert_eq!((taken, counts.queued, counts.dropped_writes), (8, 8, 12));
    running.until("is not written", |client| client.counts().written == 8).await;
    assert_eq!(running.client.counts().queued_bytes, 0);
}

#[tokio::test]
async fn nobody_waits_where_answers_take_longer_than_the_deadline() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let running = client(json!({"url": server.url()}));
    running.until_up().await;
    assert_eq!(running.client.get(&["lapwing:a"], Duration::from_nanos(1)).await, Err(RedisRefusal::Hopeless));
    assert_eq!((running.client.counts().hopeless, running.client.counts().timeouts), (1, 0));
}
