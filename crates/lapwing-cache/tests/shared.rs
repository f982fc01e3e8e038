//! The second level in a real Redis, as several processes use it: here each is an instance of its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use lapwing_cache::{
    AnswerParts, CacheKey, KeyContext, KeyMaker, KeyRules, KeyedRequest, POLL, RequestTerms, SealRefusal, SharedAnswers,
    SharedEpoch, SharedMiss, SharedScope, StoredAnswer, StoringTerms,
};
use lapwing_ledger::Stamp;
use lapwing_redis::RedisConfig;
use lapwing_testing::RedisServer;
use parking_lot::Mutex;
use tokio::task::JoinSet;

const MINUTE: u64 = 60_000_000_000;
const ANY: RequestTerms = RequestTerms { may_answer: true, only_if_cached: false, max_age_ns: u64::MAX, min_fresh_ns: 0 };
const PATIENCE: Duration = Duration::from_secs(20);
const OUTDATED: Result<String, SharedMiss> = Err(SharedMiss::Refused(SealRefusal::Epoch));

fn now() -> (Stamp, SystemTime) {
    (Stamp::now(), SystemTime::now())
}

/// The key of a request with `body`.
fn keyed(body: &str) -> KeyedRequest {
    let head = Request::post("/v2/models/m/infer").body(()).unwrap();
    KeyMaker::new([3; 32]).key(&head, &[Bytes::from(body.to_owned())], KeyContext::default(), &KeyRules::default())
}

fn answer(request: &KeyedRequest, body: &str) -> Arc<StoredAnswer> {
    let body = [Bytes::from(body.to_owned())];
    let parts =
        AnswerParts { status: StatusCode::OK, headers: &HeaderMap::new(), body: &body, trailers: None, is_complete: true };
    let terms = StoringTerms { fresh_ns: MINUTE, age_s: 0 };
    Arc::new(StoredAnswer::new(request, parts, terms, 1_000_000, Stamp::now()).unwrap())
}

/// A process with a second level.
struct Pod {
    shared: SharedAnswers,
    /// What others have forgotten.
    forgotten: Arc<Mutex<Vec<SharedScope>>>,
    _background: JoinSet<()>,
}

impl Pod {
    fn new(server: &RedisServer, secret: &str) -> Self {
        let secret = server.file(secret, &secret.repeat(32));
        let config: RedisConfig =
            serde_json::from_value(serde_json::json!({"url": server.url(), "secret_file": secret})).unwrap();
        let forgotten = Arc::<Mutex<Vec<_>>>::default();
        let list = forgotten.clone();
        let made = SharedAnswers::new("cache.redis", &config, 1 << 20, move |scope| list.lock().push(scope));
        let (shared, keeper) = made.unwrap().unwrap();
        let mut background = JoinSet::new();
        background.spawn(keeper.run());
        Self { shared, forgotten, _background: background }
    }

    async fn find(&self, key: &CacheKey, model: Option<&str>) -> Result<String, SharedMiss> {
        let found = self.shared.get(key, model, &ANY, None, now()).await;
        found.answer.map(|answer| String::from_utf8(answer.body().to_vec()).unwrap())
    }

    /// The epoch to store in, as soon as there is one.
    async fn epoch(&self, model: Option<&str>) -> SharedEpoch {
        let since = Instant::now();
        loop {
            if let Some(epoch) = self.shared.get(&keyed("nobody").shared, model, &ANY, None, now()).await.epoch {
                return epoch;
            }
            assert!(since.elapsed() < PATIENCE, "{:?}", self.shared.counts());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stores, and waits until it is written.
    async fn put(&self, request: &KeyedRequest, model: Option<&str>, body: &str) {
        let epoch = self.epoch(model).await;
        self.put_in(epoch, request, body).await;
    }

    async fn put_in(&self, epoch: SharedEpoch, request: &KeyedRequest, body: &str) {
        let before = self.shared.counts().redis.written;
        assert!(self.shared.put(request.shared, epoch, answer(request, body), now()));
        self.until(|pod| pod.shared.counts().redis.written > before).await;
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < PATIENCE, "{:?}", self.shared.counts());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn renew(&self, model: Option<&str>) {
        self.shared.renew(model);
        self.until(|pod| !pod.shared.is_renewing()).await;
    }
}

#[tokio::test]
async fn what_one_stores_another_gives_and_so_does_one_that_comes_later() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (one, other) = (Pod::new(&server, "s"), Pod::new(&server, "s"));
    let request = keyed("question");
    one.put(&request, Some("m"), "answer").await;
    other.epoch(Some("m")).await;
    assert_eq!(other.find(&request.shared, Some("m")).await.as_deref(), Ok("answer"));
    assert_eq!(other.find(&keyed("another").shared, Some("m")).await, Err(SharedMiss::Absent));
    drop(one);
    let later = Pod::new(&server, "s");
    later.epoch(Some("m")).await;
    assert_eq!(later.find(&request.shared, Some("m")).await.as_deref(), Ok("answer"));
    let fussy = RequestTerms { min_fresh_ns: 2 * MINUTE, ..ANY };
    let found = later.shared.get(&request.shared, Some("m"), &fussy, None, now()).await;
    assert_eq!((found.answer.unwrap_err(), found.epoch.is_some()), (SharedMiss::TooOld, true));
    let unwilling = RequestTerms { may_answer: false, ..ANY };
    let found = later.shared.get(&request.shared, Some("m"), &unwilling, None, now()).await;
    assert_eq!((found.answer.unwrap_err(), found.epoch.is_some()), (SharedMiss::Absent, true), "its answer may be stored");
    assert!(other.forgotten.lock().is_empty() && later.forgotten.lock().is_empty());
}

#[tokio::test]
async fn what_one_makes_forgotten_nobody_gives() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (one, other) = (Pod::new(&server, "s"), Pod::new(&server, "s"));
    let (a, b, unnamed) = (keyed("a"), keyed("b"), keyed("unnamed"));
    for (request, model) in [(&a, Some("a")), (&b, Some("b")), (&unnamed, None)] {
        one.put(request, model, "before").await;
        other.epoch(model).await;
        assert_eq!(other.find(&request.shared, model).await.as_deref(), Ok("before"));
    }
    let on_its_way = one.epoch(Some("a")).await;
    one.shared.renew(Some("a"));
    assert_eq!(one.find(&a.shared, Some("a")).await, Err(SharedMiss::WithoutEpoch), "at once");
    one.until(|pod| !pod.shared.is_renewing()).await;
    for pod in [&one, &other] {
        assert_eq!(pod.find(&a.shared, Some("a")).await, OUTDATED);
        assert_eq!(pod.find(&unnamed.shared, None).await, OUTDATED, "it may be of any model");
        assert_eq!(pod.find(&b.shared, Some("b")).await.as_deref(), Ok("before"));
    }
    // what was asked for before, and is stored after
    one.put_in(on_its_way, &a, "late").await;
    assert_eq!(other.find(&a.shared, Some("a")).await, OUTDATED);
    other.renew(None).await;
    assert_eq!(one.find(&b.shared, Some("b")).await, OUTDATED);
    one.put(&b, Some("b"), "after").await;
    assert_eq!(other.find(&b.shared, Some("b")).await.as_deref(), Ok("after"));
    assert_eq!(*one.forgotten.lock(), [SharedScope::All], "its own are no news");
}

#[tokio::test]
async fn others_are_told_without_asking_for_anything() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (one, other) = (Pod::new(&server, "s"), Pod::new(&server, "s"));
    one.epoch(Some("m")).await;
    other.epoch(Some("m")).await;
    tokio::time::sleep(2 * POLL).await;
    let since = Instant::now();
    one.renew(Some("m")).await;
    other.until(|pod| pod.forgotten.lock().contains(&SharedScope::Model("m".into()))).await;
    assert!(since.elapsed() < 4 * POLL, "{:?}", since.elapsed());
}

#[tokio::test]
async fn what_was_poisoned_is_refused() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let (pod, stranger) = (Pod::new(&server, "s"), Pod::new(&server, "t"));
    let (request, other) = (keyed("question"), keyed("other"));
    pod.put(&request, None, "answer").await;
    stranger.epoch(None).await;
    assert_eq!(stranger.find(&request.shared, None).await, Err(SharedMiss::Refused(SealRefusal::Tag)), "another secret");
    let names = server.cli(&["KEYS", "lapwing:a:*"]);
    let name = names.trim();
    let other_name = format!("lapwing:a:{}", blake3::Hash::from_bytes(*other.shared.as_bytes()).to_hex());
    server.cli(&["COPY", name, &other_name]);
    assert_eq!(pod.find(&other.shared, None).await, Err(SharedMiss::Refused(SealRefusal::Key)));
    for (command, refusal) in [
        (&["SETRANGE", name, "120", "x"][..], SealRefusal::Tag),
        (&["APPEND", name, "x"], SealRefusal::Length),
        (&["SETRANGE", name, "0", "x"], SealRefusal::Version),
        (&["SET", name, ""], SealRefusal::Length),
    ] {
        server.cli(command);
        assert_eq!(pod.find(&request.shared, None).await, Err(SharedMiss::Refused(refusal)), "{command:?}");
    }
    server.cli(&["DEL", name]);
    server.cli(&["HSET", name, "a", "b"]);
    assert_eq!(pod.find(&request.shared, None).await, Err(SharedMiss::Absent), "of another type");
    assert_eq!(pod.shared.counts().refused.iter().sum::<u64>(), 5);
}

#[tokio::test]
async fn epochs_that_redis_loses_or_brings_back_bring_nothing_back() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let pod = Pod::new(&server, "s");
    let request = keyed("question");
    pod.put(&request, None, "answer").await;
    // lost, as by eviction
    server.cli(&["DEL", "lapwing:e:all"]);
    assert_eq!(pod.find(&request.shared, None).await, Err(SharedMiss::WithoutEpoch));
    pod.epoch(None).await;
    assert_eq!(pod.find(&request.shared, None).await, OUTDATED);
    // brought back, as by a replica that did not have the last write
    pod.put(&request, None, "answer").await;
    server.cli(&["COPY", "lapwing:e:all", "kept"]);
    pod.renew(None).await;
    server.cli(&["COPY", "kept", "lapwing:e:all", "REPLACE"]);
    assert_eq!(pod.find(&request.shared, None).await, Err(SharedMiss::WithoutEpoch));
    pod.epoch(None).await;
    assert_eq!(pod.find(&request.shared, None).await, OUTDATED);
    // written by somebody else
    server.cli(&["SET", "lapwing:e:all", "x"]);
    assert_eq!(pod.find(&request.shared, None).await, Err(SharedMiss::WithoutEpoch));
    pod.epoch(None).await;
}

#[tokio::test]
async fn a_purge_that_redis_does_not_hear_of_is_told_it_later() {
    let Some(mut server) = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let (one, other) = (Pod::new(&server, "s"), Pod::new(&server, "s"));
    let request = keyed("question");
    one.put(&request, None, "answer").await;
    other.epoch(None).await;
    server.kill();
    one.shared.renew(None);
    assert!(one.find(&request.shared, None).await.is_err() && one.shared.is_renewing());
    server.restart();
    one.until(|pod| !pod.shared.is_renewing()).await;
    for pod in [&one, &other] {
        pod.epoch(None).await;
        assert_eq!(pod.find(&request.shared, None).await, OUTDATED);
    }
}

/// No answer from before a purge is given by anybody who asks after it, also not one that was on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stale_is_given_under_load() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let pods = Arc::new([Pod::new(&server, "s"), Pod::new(&server, "s")]);
    for pod in pods.iter() {
        pod.epoch(Some("m")).await;
    }
    // what the model answers, and what must not be given any more is smaller
    let (version, purged) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
    let (ended, given) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for client in 0..8_usize {
        let (pods, version, purged) = (pods.clone(), version.clone(), purged.clone());
        let (ended, given) = (ended.clone(), given.clone());
        clients.spawn(async move {
            let mut round = client;
            while ended.load(SeqCst) == 0 {
                round += 1;
                let (pod, request) = (&pods[round % 2], keyed(&(round % 3).to_string()));
                let oldest = purged.load(SeqCst);
                let found = pod.shared.get(&request.shared, Some("m"), &ANY, None, now()).await;
                if let Ok(answer) = found.answer {
                    let said: u64 = std::str::from_utf8(answer.body()).unwrap().parse().unwrap();
                    assert!(said >= oldest, "an answer of version {said} after {oldest}");
                    given.fetch_add(1, SeqCst);
                } else if let Some(epoch) = found.epoch {
                    let says = version.load(SeqCst).to_string();
                    tokio::time::sleep(Duration::from_micros(500)).await;
                    pod.shared.put(request.shared, epoch, answer(&request, &says), now());
                } else {
                    // nobody waits for an epoch, so this would be all that runs
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
            }
        });
    }
    for purge in 0..40 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        let newest = version.fetch_add(1, SeqCst) + 1;
        pods[purge % 2].renew(if purge % 3 == 0 { None } else { Some("m") }).await;
        purged.store(newest, SeqCst);
    }
    ended.store(1, SeqCst);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert!(given.load(SeqCst) > 100, "{} given: {:?}", given.load(SeqCst), pods[0].shared.counts());
}

/// What a hit takes beside the round trip to Redis, with optimised code of this workspace:
/// `cargo test --release -p lapwing-cache --test shared -- --ignored --nocapture costs`.
#[tokio::test]
#[ignore = "prints times"]
async fn costs() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let pod = Pod::new(&server, "s");
    let config: RedisConfig = serde_json::from_value(serde_json::json!({"url": server.url()})).unwrap();
    let queue = config.write_queue.bounds();
    let (plain, keeper) = lapwing_redis::RedisClient::new("cache.redis", config.target().unwrap(), queue, b"a".to_vec()).unwrap();
    let mut background = JoinSet::new();
    background.spawn(keeper.run());
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    for bytes in [1 << 10, 64 << 10, 1 << 20] {
        let request = keyed(&bytes.to_string());
        pod.put(&request, Some("m"), &"x".repeat(bytes)).await;
        server.cli(&["SETRANGE", "plain", &(bytes - 1).to_string(), "x"]);
        let (mut hits, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..2_000 {
            let since = Instant::now();
            // a busy machine may be late
            if pod.find(&request.shared, Some("m")).await.is_ok() {
                hits.push(since.elapsed());
            }
            let since = Instant::now();
            if plain.get(&["plain"], Duration::from_secs(1)).await.is_ok() {
                reads.push(since.elapsed());
            }
        }
        println!("{bytes} B: a hit {:?}, a read of as many bytes {:?}", median(hits), median(reads));
    }
}
