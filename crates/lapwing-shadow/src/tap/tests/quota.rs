//! Quotas in a listening proxy: which requests are captured, which of them are handed over, and what the share's copies keep.

use super::*;

const ROUTE: &str = "POST /v2/models/{model}/infer";

fn quotas(per_minute: u32) -> QuotaTable {
    QuotaTable::new(&[RouteQuota { route: ROUTE.to_owned(), per_minute }], &ROUTES)
}

/// Taken, let go, skipped.
fn counts(parts: &TapParts) -> [u64; 3] {
    let quota = parts.quotas.routes().next().unwrap();
    QuotaResult::ALL.map(|result| quota.count(result))
}

async fn ask(proxy: &Proxy, path: &str, rows: u64, header: (&str, &str)) {
    let body = Full::new(Bytes::from(format!("{rows} rows")));
    let request = Request::post(path).header(ROWS, rows).header(header.0, header.1).body(body).unwrap();
    proxy.client.fetch(request).await.unwrap();
}

const PLAIN: (&str, &str) = ("x-plain", "1");

#[tokio::test]
async fn each_class_has_its_copies_and_other_routes_are_not_captured() {
    let tasks = Tasks::default();
    let (upstream, _) = server("answer ", &tasks).await;
    let (branch, parts) = branch_of("0%", 64, 4 << 20, quotas(2));
    let proxy = Proxy::start(tap_of(Some(branch), &Arc::default()), upstream, &tasks);
    for _ in 0..5 {
        ask(&proxy, INFER, 1, PLAIN).await;
    }
    ask(&proxy, INFER, 64, PLAIN).await;
    ask(&proxy, INFER, 64, ("x-lapwing-shadow", "1")).await; // a copy itself
    for _ in 0..3 {
        ask(&proxy, "/v1/embeddings", 64, PLAIN).await;
    }
    let ledgers = proxy.closed(10).await;
    assert_eq!(counts(&parts), [3, 3, 0], "nothing but clients' requests to the route");
    let jobs: Vec<_> = std::iter::from_fn(|| parts.queue.pop()).collect();
    let taken = ledgers.iter().filter(|ledger| ledger.copied == Some(CopyCause::Quota));
    assert_eq!(jobs.iter().map(|job| Some(job.pair)).collect::<Vec<_>>(), taken.map(|ledger| ledger.pair).collect::<Vec<_>>());
    assert_eq!(ledgers.iter().filter(|ledger| ledger.pair.is_some()).count(), 3, "those that are let go leave no trace");
    for (job, rows) in jobs.into_iter().zip(["1 rows", "1 rows", "64 rows"]) {
        assert_eq!((job.cause, bytes_of(job.exchange.body).await), (CopyCause::Quota, Ok(rows.into())));
        let answer = job.exchange.answer.await.unwrap();
        assert_eq!(bytes_of(answer.body).await, Ok(format!("answer {rows}").into_bytes()));
    }
    assert_eq!((parts.budget.fill().0, parts.counters.dropped(ShadowDrop::QueueFull)), (0, 0));
}

#[tokio::test]
async fn half_of_the_queue_is_for_the_share() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    let (branch, parts) = branch_of("0%", 4, 4 << 20, quotas(100));
    let proxy = Proxy::start(tap_of(Some(branch), &Arc::default()), upstream, &tasks);
    for _ in 0..5 {
        ask(&proxy, INFER, 1, PLAIN).await;
    }
    proxy.closed(5).await;
    assert_eq!((counts(&parts), parts.queue.len()), ([2, 0, 3], 2));
    assert_eq!(parts.counters.dropped(ShadowDrop::QueueFull), 0, "no copy that was wanted is missing");
}

#[tokio::test]
async fn what_the_share_draws_is_no_candidate() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    let (branch, parts) = branch_of("100%", 2, 4 << 20, quotas(100));
    let proxy = Proxy::start(tap_of(Some(branch), &Arc::default()), upstream, &tasks);
    for _ in 0..3 {
        ask(&proxy, INFER, 1, PLAIN).await;
    }
    let causes: Vec<_> = proxy.closed(3).await.iter().map(|ledger| ledger.copied).collect();
    assert_eq!(causes, [Some(CopyCause::Share), Some(CopyCause::Share), None]);
    assert_eq!((counts(&parts), parts.counters.dropped(ShadowDrop::QueueFull)), ([0; 3], 1));
}

#[tokio::test]
async fn a_request_without_an_answer_is_let_go() {
    let tasks = Tasks::default();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (branch, parts) = branch_of("0%", 64, 4 << 20, quotas(100));
    let proxy = Proxy::start(tap_of(Some(branch), &Arc::default()), gone, &tasks);
    ask(&proxy, INFER, 1, PLAIN).await;
    proxy.closed(1).await;
    assert_eq!((counts(&parts), parts.queue.len(), parts.budget.fill().0), ([0, 1, 0], 0, 0));
}

#[tokio::test]
async fn a_candidate_that_is_recorded_has_one_number() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    let switch = Arc::new(RecordingSwitch::default());
    let (branch, parts) = branch_of("0%", 64, 4 << 20, quotas(1));
    let (recording, records) = branch_of("100%", 64, 4 << 20, QuotaTable::default());
    let proxy = Proxy::start(tap_of(Some(branch), &switch), upstream, &tasks);
    let _running = switch.turn_on(recording).unwrap();
    for _ in 0..2 {
        ask(&proxy, INFER, 1, PLAIN).await;
    }
    let ledgers = proxy.closed(2).await;
    let [first, second] = [0, 1].map(|_| records.queue.pop().unwrap().pair);
    assert_eq!(ledgers.iter().map(|ledger| ledger.pair).collect::<Vec<_>>(), [Some(first), Some(second)]);
    assert_eq!((parts.queue.pop().unwrap().pair, counts(&parts)), (first, [1, 1, 0]));
}

#[tokio::test]
async fn nothing_is_captured_while_no_target_would_be_sent_a_copy() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    for (share, dropped, skipped) in [("100%", 1, 0), ("0%", 0, 1)] {
        let (branch, parts) = branch_of(share, 64, 4 << 20, quotas(100));
        let proxy = Proxy::start(tap_of(Some(branch), &Arc::default()), upstream, &tasks);
        parts.pause(true);
        ask(&proxy, INFER, 1, PLAIN).await;
        proxy.closed(1).await;
        assert_eq!((parts.counters.dropped(ShadowDrop::CircuitOpen), counts(&parts)), (dropped, [0, 0, skipped]));
        assert!(parts.queue.is_empty());
        parts.pause(false);
        ask(&proxy, INFER, 1, PLAIN).await;
        proxy.closed(1).await;
        assert_eq!(parts.queue.len(), 1, "{share}");
    }
}
