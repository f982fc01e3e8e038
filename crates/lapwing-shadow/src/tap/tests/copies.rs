//! What the tap copies, what it leaves alone, and that a request never depends on it.

use http::HeaderValue;

use super::*;

#[tokio::test]
async fn a_sampled_request_and_its_answer_are_handed_over_whole() {
    let tasks = Tasks::default();
    let (upstream, _) = server("answer ", &tasks).await;
    let (tap, parts) = tap(64, 4 << 20);
    let proxy = Proxy::start(tap, upstream, &tasks);
    for length in [0, 10, 5_000, 1_000_000] {
        let body = Bytes::from(vec![b'x'; length]);
        let answer = [b"answer ", &body[..]].concat();
        assert_eq!(proxy.ask(INFER, body.clone()).await, answer);
        assert_eq!(proxy.ask("/orders", body.clone()).await, answer, "not safe to repeat");
        let ShadowJob { pair, exchange, .. } = parts.queue.pop().unwrap();
        let lapwing_proxy::CapturedExchange { path, body: copy, answer: answered, .. } = exchange;
        assert_eq!((path.as_str(), bytes_of(copy).await), (INFER, Ok(body.to_vec())));
        let answered = answered.await.unwrap();
        assert_eq!((answered.status.as_u16(), bytes_of(answered.body).await), (200, Ok(answer)));
        let pairs: Vec<_> = proxy.closed(2).await.iter().map(|ledger| (ledger.pair, ledger.is_copy)).collect();
        assert!(pairs.contains(&(Some(pair), false)) && pairs.contains(&(None, false)), "{pairs:?}");
    }
    assert!(parts.queue.is_empty());
    assert_eq!(parts.budget.fill().0, 0);
}

#[tokio::test]
async fn without_room_the_copy_is_dropped_and_the_request_is_not() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    let (tap, parts) = tap(1, 8_192);
    let proxy = Proxy::start(tap, upstream, &tasks);
    let large = Bytes::from(vec![b'x'; 100_000]);
    for _ in 0..3 {
        assert_eq!(proxy.ask(INFER, large.clone()).await, large);
    }
    assert_eq!(parts.counters.dropped(ShadowDrop::QueueFull), 2);
    let job = parts.queue.pop().unwrap();
    assert_eq!(bytes_of(job.exchange.body).await, Err(Incomplete::TooLarge));
    assert_eq!(proxy.closed(3).await.iter().filter(|ledger| ledger.pair.is_some()).count(), 1);
    assert_eq!(parts.budget.fill().0, 0);
}

#[tokio::test]
async fn a_recording_gets_copies_of_its_own_while_it_runs() {
    let tasks = Tasks::default();
    let (upstream, _) = server("answer ", &tasks).await;
    let switch = Arc::new(RecordingSwitch::default());
    let ((shadow, copies), (recording, records)) = (branch(64, 4 << 20), branch(64, 4 << 20));
    let proxy = Proxy::start(tap_of(Some(shadow), &switch), upstream, &tasks);
    proxy.ask(INFER, "before").await;
    let running = switch.turn_on(recording).unwrap();
    assert!(switch.turn_on(branch(1, 1).0).is_none(), "one at a time");
    proxy.ask(INFER, "during").await;
    drop(running);
    proxy.ask(INFER, "after").await;
    let pairs = |parts: &TapParts| std::iter::from_fn(|| parts.queue.pop()).collect::<Vec<_>>();
    let (copies, mut records) = (pairs(&copies), pairs(&records));
    assert_eq!((copies.len(), records.len()), (3, 1));
    assert_eq!(records[0].pair, copies[1].pair, "one number for one request");
    let record = records.remove(0).exchange;
    assert_eq!(bytes_of(record.body).await, Ok(b"during".to_vec()));
    assert_eq!(bytes_of(record.answer.await.unwrap().body).await, Ok(b"answer during".to_vec()));
    let mut noted: Vec<_> = proxy.closed(3).await.iter().map(|ledger| (ledger.copied.is_some(), ledger.is_recorded)).collect();
    noted.sort_unstable();
    assert_eq!(noted, [(true, false), (true, false), (true, true)]);
    assert!(switch.turn_on(branch(1, 1).0).is_some());
}

#[tokio::test]
async fn nobody_need_take_the_copies() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    let (tap, parts) = tap(64, 4 << 20);
    let proxy = Proxy::start(tap, upstream, &tasks);
    for n in 0..10_u8 {
        assert_eq!(proxy.ask(INFER, vec![n; 50_000]).await, vec![n; 50_000]);
        drop(parts.queue.pop());
    }
    assert_eq!((proxy.closed(10).await.len(), parts.budget.fill().0), (10, 0));
}

#[tokio::test]
async fn a_failed_request_leaves_no_answer() {
    let tasks = Tasks::default();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (tap, parts) = tap(64, 4 << 20);
    let proxy = Proxy::start(tap, gone, &tasks);
    let request = Request::post(INFER).body(Full::new(Bytes::from_static(b"x"))).unwrap();
    assert_eq!(proxy.client.fetch(request).await.unwrap().status().as_u16(), 502);
    assert!(parts.queue.pop().unwrap().exchange.answer.await.is_err());
}

#[tokio::test]
async fn the_stack_of_copies_knows_them_by_number_and_hides_it() {
    let tasks = Tasks::default();
    let (upstream, asked) = server("", &tasks).await;
    let proxy = Proxy::start(CopyRecognition, upstream, &tasks);
    let mut request = Request::post("/x").body(Full::new(Bytes::new())).unwrap();
    request.headers_mut().insert(PAIR_FIELD, HeaderValue::from_static("41"));
    proxy.client.fetch(request).await.unwrap();
    proxy.ask("/y", "").await;
    let ledgers = proxy.closed(2).await;
    assert!(asked.lock().unwrap().iter().all(|headers| !headers.contains_key(PAIR_FIELD)));
    assert!(ledgers.iter().all(|ledger| ledger.is_copy));
    assert_eq!(ledgers.iter().map(|ledger| ledger.pair).collect::<Vec<_>>(), [PairId::new(41), None]);
    assert_eq!(asked.lock().unwrap().len(), 2);
}
