//! The poller step by step against a server in the process with prepared answers.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::*;
use lapwing_ledger::{LabelId, Ledger, Phase, ServerEvidence, Stage, Stamp};
use lapwing_metrics::{PolledInterval, PolledKey};
use lapwing_net::ClientError;

const TEXT: &str = include_str!("../../../../tests/fixtures/vllm/metrics.txt");
const STATS: &str = include_str!("../../../../tests/fixtures/triton/triton_2.51_stats.json");

/// What the server answers by path, and what it was asked.
#[derive(Clone, Default)]
struct FakeServer {
    answers: Arc<Mutex<HashMap<String, String>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    fn answer(&self, path: &str, answer: &str) {
        self.answers.lock().insert(path.to_owned(), answer.to_owned());
    }

    fn forget(&self) {
        self.answers.lock().clear();
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock())
    }
}

/// A server until the set is dropped, and its address.
async fn serve() -> (FakeServer, Upstream, JoinSet<()>) {
    let server = FakeServer::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Http { authority: listener.local_addr().unwrap().to_string(), scheme: HttpScheme::Http };
    let answering = server.clone();
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| async move {
        assert!(request.headers()["user-agent"].to_str().unwrap().starts_with("lapwing/"));
        let path = request.uri().path();
        let answer = answering.answers.lock().get(path).cloned();
        answering.asked.lock().push(path.to_owned());
        answer.ok_or(::http::StatusCode::NOT_FOUND)
    });
    let serving = JoinSet::from_iter([async move { axum::serve(listener, router).await.unwrap() }]);
    (server, upstream, serving)
}

fn target(upstream: &Upstream) -> Target {
    Target::of(upstream, &Arc::default())
}

/// A poller, and its state.
struct Polling {
    poller: Poller,
    state: Option<State>,
    results: HashMap<PolledKey, PolledInterval>,
}

impl Polling {
    fn of(upstream: Upstream) -> Self {
        let poller = Poller {
            poll: Poll::Auto,
            interval: ConfigHandle::fixed(Duration::from_secs(5)),
            target: target(&upstream),
            upstream,
            statistics: Arc::default(),
            label: LabelId::OTHER,
            labels: Arc::new(Labels::new(8, 8, 8)),
            rules: ConfigHandle::fixed(Rules::default()),
            counters: Arc::default(),
        };
        Self { state: poller.start(), poller, results: HashMap::new() }
    }

    /// The same for an address of the configuration, without a path.
    fn at(upstream: &Upstream) -> Self {
        let Upstream::Http { authority, .. } = upstream else { panic!("{upstream}") };
        let elsewhere = Upstream::Http { authority: "127.0.0.1:1".to_owned(), scheme: HttpScheme::Http };
        let poll = Poll::At { authority: authority.clone(), path: String::new() };
        let poller = Poller { poll, ..Self::of(elsewhere).poller };
        Self { state: poller.start(), poller, results: HashMap::new() }
    }

    /// A client's exchange shows this server.
    fn show(&self, server: Server, evidence: ServerEvidence) {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        (ledger.server, ledger.server_evidence) = (Some(server), Some(evidence));
        self.poller.statistics.evidence.note(&ledger);
    }

    async fn step(&mut self) -> Duration {
        let (state, pause) = self.poller.step(self.state.take().unwrap()).await;
        self.state = Some(state);
        pause
    }

    fn model(&self, name: &str) -> LabelId {
        self.poller.labels.models.intern(name)
    }

    /// The means of what was found of the model since the last call.
    fn polled(&mut self, model: LabelId) -> Option<Vec<(Stage, Option<Phase>, u64)>> {
        let upstream = self.poller.label;
        self.results.extend(self.poller.statistics.take());
        let interval = self.results.remove(&PolledKey { model, upstream })?;
        Some(interval.stages.iter().map(|time| (time.stage, time.phase, time.sum.mean_ns())).collect())
    }

    fn counted(&self) -> (u64, u64) {
        (self.poller.counters.get(Counter::PollsOk), self.poller.counters.get(Counter::PollsFailed))
    }
}

#[tokio::test]
async fn nothing_is_asked_until_the_traffic_shows_the_server_and_then_only_its_own_path() {
    let (server, upstream, _serving) = serve().await;
    let mut polling = Polling::of(upstream);
    let (first, second) = TEXT.split_once("# --- second poll\n").unwrap();
    server.answer("/metrics", first);
    for _ in 0..5 {
        assert_eq!(polling.step().await, FIRST_DELAY);
    }
    assert_eq!(server.requests(), [""; 0]);
    polling.show(Server::Vllm, ServerEvidence::Body);
    assert_eq!(polling.step().await, *polling.poller.interval.load());
    assert_eq!(server.requests(), ["/metrics"]);
    assert_eq!(polling.poller.statistics.server(), Some(Server::Vllm));
    server.answer("/metrics", second);
    let (model, whole) = (polling.model("org/m"), polling.model(""));
    assert_eq!(polling.polled(model), None, "one poll makes no mean");
    polling.step().await;
    let means = polling.polled(model).unwrap();
    assert_eq!(means[0], (Stage::Queue, None, 10_000_000));
    assert_eq!(means[1], (Stage::Forward, Some(Phase::Prefill), 50_000_000));
    assert_eq!(polling.polled(whole), None, "counted once");
    assert_eq!((server.requests(), polling.counted()), (vec!["/metrics".to_owned()], (1, 0)));
    // nothing came in between
    polling.step().await;
    assert_eq!(polling.polled(model), None);
}

#[tokio::test]
async fn a_refusal_ends_it() {
    for answer in [None, Some("<html>a user's page</html>")] {
        let (server, upstream, _serving) = serve().await;
        let mut polling = Polling::of(upstream);
        if let Some(answer) = answer {
            server.answer("/metrics", answer);
        }
        for _ in 0..5 {
            polling.show(Server::Vllm, ServerEvidence::Body);
            polling.step().await;
        }
        assert_eq!((server.requests(), polling.counted()), (vec!["/metrics".to_owned()], (0, 1)), "{answer:?}");
        assert_eq!(polling.poller.statistics.server(), None);
        polling.show(Server::Tei, ServerEvidence::Head);
        polling.step().await;
        assert_eq!(server.requests(), ["/metrics"], "another server may be asked");
    }
}

#[tokio::test]
async fn a_refusal_after_good_answers_ends_it_too() {
    let (server, upstream, _serving) = serve().await;
    let mut polling = Polling::of(upstream);
    server.answer("/metrics", TEXT);
    polling.show(Server::Vllm, ServerEvidence::Body);
    polling.step().await;
    server.forget();
    for _ in 0..3 {
        polling.show(Server::Vllm, ServerEvidence::Body);
        polling.step().await;
    }
    assert_eq!((server.requests().len(), polling.counted()), (2, (0, 1)));
}

#[tokio::test]
async fn a_path_that_clients_use_is_not_asked() {
    for is_used_from_the_start in [true, false] {
        let (server, upstream, _serving) = serve().await;
        let mut polling = Polling::of(upstream);
        server.answer("/metrics", TEXT);
        polling.show(Server::Vllm, ServerEvidence::Body);
        if !is_used_from_the_start {
            polling.step().await;
            assert_eq!(server.requests(), ["/metrics"]);
        }
        polling.poller.labels.routes.intern("POST /metrics");
        for _ in 0..3 {
            polling.show(Server::Vllm, ServerEvidence::Body);
            polling.step().await;
        }
        assert_eq!(server.requests(), [""; 0]);
    }
}

#[test]
fn what_is_never_asked() {
    let poller = |poll, upstream| Poller { poll, ..Polling::of(upstream).poller };
    let h1 = Upstream::Http { authority: "127.0.0.1:1".to_owned(), scheme: HttpScheme::Http };
    let h2 = Upstream::Http { authority: "127.0.0.1:1".to_owned(), scheme: HttpScheme::H2c };
    assert!(poller(Poll::Off, h1.clone()).start().is_none());
    assert!(poller(Poll::Auto, h2).start().is_none(), "it speaks no other protocol");
    let polling = Polling::of(h1);
    for server in Server::ALL.iter().filter(|server| detect::own_path(**server).is_none()) {
        polling.show(*server, ServerEvidence::Span);
        assert!(polling.poller.recognise().is_none(), "{server:?}");
    }
}

#[tokio::test]
async fn a_server_that_goes_and_comes_back_as_another_is_recognised_anew() {
    let (server, upstream, serving) = serve().await;
    let mut polling = Polling::of(upstream);
    server.answer("/metrics", TEXT);
    polling.show(Server::Vllm, ServerEvidence::Body);
    polling.step().await;
    drop(serving); // nobody listens: no answer, which is no refusal
    tokio::task::yield_now().await;
    for _ in 0..MAX_FAILED_POLLS - 1 {
        polling.step().await;
        assert_eq!(polling.poller.statistics.server(), Some(Server::Vllm));
    }
    polling.step().await;
    assert_eq!((polling.poller.statistics.server(), polling.counted()), (None, (0, 3)));
    assert_eq!(polling.step().await, FIRST_DELAY, "until the traffic shows a server again");
}

#[tokio::test]
async fn a_restarted_server_is_left_out_for_one_poll() {
    let (server, upstream, _serving) = serve().await;
    let mut polling = Polling::of(upstream);
    let poll = |ms: u32, count: u32| {
        format!("te_request_queue_duration_sum {}\nte_request_queue_duration_count {count}\n", f64::from(ms) / 1e3)
    };
    server.answer("/metrics", &poll(900, 9));
    polling.show(Server::Tei, ServerEvidence::Head);
    polling.step().await;
    let mut means = Vec::new();
    for (ms, count) in [(3, 1), (9, 3), (29, 4)] {
        server.answer("/metrics", &poll(ms, count));
        polling.step().await;
        let whole = polling.model("");
        means.push(polling.polled(whole).map(|stages| stages[0].2));
    }
    assert_eq!(means, [None, Some(3_000_000), Some(20_000_000)]);
}

#[tokio::test]
async fn processes_behind_one_port_have_counters_of_their_own() {
    let (server, upstream, _serving) = serve().await;
    let mut polling = Polling::of(upstream);
    let poll = |process: u32, count: u32| {
        let (name, ms) = ("te_request_queue_duration", count * 2);
        format!("process_start_time_seconds 170000000{process}\n{name}_sum {}\n{name}_count {count}\n", f64::from(ms) / 1e3)
    };
    polling.show(Server::Tei, ServerEvidence::Head);
    let mut requests = 0;
    for (process, count) in [(1, 90), (1, 90), (2, 5), (1, 94), (2, 8), (2, 9), (1, 94)] {
        server.answer("/metrics", &poll(process, count));
        polling.step().await;
        for (_, interval) in polling.poller.statistics.take() {
            requests += interval.requests();
            assert_eq!(interval.stages[0].sum.mean_ns(), 2_000_000);
        }
    }
    assert_eq!(requests, 4 + 4, "what each added to its own counters, and none for less than the other has");
}

#[tokio::test]
async fn a_lone_model_that_clients_call_otherwise_is_the_server_as_a_whole() {
    let (server, upstream, _serving) = serve().await;
    let mut polling = Polling::of(upstream);
    let (first, second) = TEXT.split_once("# --- second poll\n").unwrap();
    polling.show(Server::Vllm, ServerEvidence::Body);
    for text in [first, first, second] {
        server.answer("/metrics", text);
        polling.step().await;
    }
    let whole = polling.model("");
    assert_eq!(polling.polled(whole).unwrap()[0], (Stage::Queue, None, 10_000_000));
    assert_eq!(polling.poller.labels.models.find("org/m"), None, "no label for a name that no client uses");
}

const PIPE: &str = r#"{"platform":"ensemble","ensemble_scheduling":{"step":[{"model_name":"pre"},{"model_name":"fwd"}]}}"#;

/// A Triton that was recognised, whose first poll found no model; and the label of its ensemble.
async fn triton() -> (FakeServer, Polling, LabelId, JoinSet<()>) {
    let (server, upstream, serving) = serve().await;
    let mut polling = Polling::of(upstream);
    server.answer(triton::STATS, r#"{"model_stats":[]}"#);
    let pipe = polling.model("pipe");
    polling.show(Server::Triton, ServerEvidence::Span);
    polling.step().await;
    server.answer(triton::STATS, STATS);
    assert_eq!(server.requests(), [triton::STATS]);
    (server, polling, pipe, serving)
}

/// What the real server counted for its ensemble `pipe` since its start: its own queue and that of its steps `pre` and `fwd`, each
/// rounded to its own nanosecond.
const PIPE_QUEUE_NS: u64 = 4_852 + 58_887 + 2_357_359;

#[tokio::test]
async fn an_ensembles_statistics_wait_for_its_configuration_and_lose_nothing() {
    let (server, mut polling, pipe, _serving) = triton().await;
    server.answer("/v2/models/pipe/config", PIPE);
    polling.step().await;
    assert_eq!(polling.polled(pipe), None, "its own queue is not the whole of it");
    assert!(polling.state.as_ref().unwrap().is_waiting());
    polling.step().await;
    assert_eq!(polling.polled(pipe), None);
    polling.step().await;
    assert_eq!(server.requests(), [triton::STATS, "/v2/models/pipe/config", triton::STATS], "once, and of no other model");
    assert_eq!(polling.polled(pipe).unwrap()[0], (Stage::Queue, None, PIPE_QUEUE_NS), "since the poll before it waited");
    assert!(!polling.state.as_ref().unwrap().is_waiting());
    server.answer(triton::STATS, &STATS.replace(r#""count":2,"ns":9703"#, r#""count":3,"ns":10703"#));
    polling.step().await;
    assert_eq!(polling.polled(pipe).unwrap()[0], (Stage::Queue, None, 1_000));
    assert_eq!(polling.poller.labels.models.find("fwd"), None, "no label for a model that no client asks for");
    let whole = polling.model("");
    assert_eq!((polling.polled(whole), polling.counted()), (None, (3, 0)));
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_asked_for_a_few_times_and_never_guessed() {
    let (server, mut polling, pipe, _serving) = triton().await;
    let other = polling.model("rowsum");
    for _ in 0..10 {
        polling.step().await;
    }
    let asked = server.requests().iter().filter(|path| *path == "/v2/models/pipe/config").count();
    assert_eq!((asked, polling.polled(pipe), polling.polled(other)), (4, None, None));
    assert!(!polling.state.as_ref().unwrap().is_waiting());
}

#[tokio::test]
async fn a_configured_server_without_statistics_is_asked_ever_more_rarely() {
    let (server, upstream, serving) = serve().await;
    let mut polling = Polling::at(&upstream);
    let (interval, mut pauses) = (*polling.poller.interval.load(), Vec::new());
    for _ in 0..7 {
        for _ in 0..4 {
            assert_eq!(polling.step().await, interval);
        }
        pauses.push(polling.step().await.as_secs());
    }
    assert_eq!(pauses, [60, 120, 240, 480, 960, 960, 960]);
    assert_eq!(server.requests()[..4], ["/v2", "/metrics", "/monitoring/prometheus/metrics", "/prometheus/metrics"]);
    drop(serving); // nothing listens, as before a server is up: it is asked again soon
    tokio::task::yield_now().await;
    for _ in 0..15 {
        assert_eq!(polling.step().await, interval);
    }
    assert_eq!((polling.poller.statistics.server(), polling.counted()), (None, (0, 0)));
}

#[tokio::test]
async fn what_is_too_large_or_no_text_is_no_answer() {
    let (server, upstream, _serving) = serve().await;
    let upstream = target(&upstream);
    server.answer("/large", &"x".repeat(http::MAX_BYTES + 1));
    server.answer("/fits", &"x".repeat(http::MAX_BYTES));
    assert!(matches!(http::get(&upstream, "/large").await, Err(http::Error::Exchange(ClientError::BodyTooLarge(_)))));
    assert_eq!(http::get(&upstream, "/fits").await.unwrap().len(), http::MAX_BYTES);
    assert!(matches!(http::get(&upstream, "/none").await, Err(http::Error::Status(::http::StatusCode::NOT_FOUND))));
    assert!(matches!(http::get(&upstream, "no path").await, Err(http::Error::Request(_))));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_costs_two_seconds() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Target::Tcp(listener.local_addr().unwrap().to_string());
    let started = sleep(Duration::ZERO).deadline();
    assert!(matches!(http::get(&upstream, "/metrics").await, Err(http::Error::Exchange(ClientError::Timeout(_)))));
    let passed = sleep(Duration::ZERO).deadline() - started;
    assert!((http::LIMIT..http::LIMIT * 2).contains(&passed), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_while_nobody_uses_the_server() {
    let (server, upstream, _serving) = serve().await;
    let poller = Polling::of(upstream).poller;
    let (statistics, stop) = (poller.statistics.clone(), CancellationToken::new());
    let mut running = JoinSet::new();
    running.spawn(poller.run(stop.clone()));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(server.requests(), [""; 0]);
    statistics.note_request();
    sleep(FIRST_DELAY * 2).await;
    assert!(!statistics.take_requested(), "the request was seen");
    stop.cancel();
    running.join_next().await.unwrap().unwrap();
}
