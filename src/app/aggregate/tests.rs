//! What the aggregator does with what it takes: prompts, whose tokens are counted if there is time, otherwise estimated; the wall clock; and when it
//! looks again.

use http::{HeaderMap, Method};

use super::*;
use lapwing_ledger::{Basis, Unit, clock};
use lapwing_metrics::{Labels, Order};
use lapwing_protocol::{Config, Protocols};

fn aggregation(capacity: usize, config: &Config) -> Aggregation {
    let (labels, counters) = (Arc::new(Labels::new(8, 8, 8)), Arc::new(Counters::default()));
    let registry = Registry::new(lapwing_metrics::Config::default(), labels, counters.clone());
    let (queue, joining) = (Arc::new(ArrayQueue::new(capacity)), ConfigHandle::fixed(lapwing_attribution::Config::default()));
    let assessor = DebtAssessor::new(Arc::default(), registry.labels().clone());
    Aggregation::new(joining, assessor, queue, Arc::new(Mutex::new(registry)), counters, Vec::new())
        .tokenizing(Tokenizers::load(config).unwrap())
}

fn config() -> Config {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers/words.json");
    Config { tokenizers: [("*".to_owned(), file)].into(), ..Config::default() }
}

/// An exchange with a prompt of two words in seven bytes, closed.
fn ledger(config: &Config, body: &str) -> Ledger {
    let protocols = Protocols::new(config);
    let mut tap = protocols.open(&protocols.detect(&Method::POST, "/v1/chat/completions"), &HeaderMap::new()).unwrap();
    tap.request(body.as_bytes());
    tap.response_head(200, &HeaderMap::new());
    let mut ledger = Ledger::open(Stamp::now(), 0);
    tap.close(&mut ledger);
    assert_eq!(ledger.work.get(Unit::InputToken), Some((2, Basis::Estimated)));
    ledger
}

const BODY: &str = r#"{"messages":[{"content":"the bee"},{"content":""}]}"#;

#[test]
fn prompts_are_counted_unless_a_quarter_of_the_queue_waits() {
    let config = config();
    let aggregation = aggregation(8, &config);
    let skipped = || aggregation.counters.get(Counter::PromptsSkipped);
    let counted = |since| {
        let mut ledger = ledger(&config, r#"{"messages":[{"content":"the the"}]}"#);
        ledger.work.set(Unit::InputToken, 99, Basis::Estimated);
        aggregation.tokenize(&mut ledger, since);
        assert!(ledger.prompt.is_none());
        ledger.work.get(Unit::InputToken)
    };
    for _ in 0..2 {
        aggregation.queue.push(Box::new(ledger(&config, BODY))).unwrap();
    }
    let started = Stamp::now();
    assert_eq!((counted(started), skipped()), (Some((2, Basis::Counted)), 0));
    aggregation.queue.push(Box::new(ledger(&config, BODY))).unwrap();
    assert_eq!((counted(started), skipped()), (Some((99, Basis::Estimated)), 1));
}

#[test]
fn what_cannot_be_tokenized_is_told() {
    let config = config();
    let aggregation = aggregation(8, &config);
    let mut broken = ledger(&config, r#"{"messages":[{"content":"the bee"}] ?"#);
    aggregation.tokenize(&mut broken, Stamp::now());
    assert_eq!(broken.work.get(Unit::InputToken), Some((2, Basis::Estimated)));
    assert_eq!(aggregation.counters.get(Counter::PromptsFailed), 1);
}

#[test]
fn counted_tokens_are_what_is_recorded() {
    let config = config();
    let mut aggregation = aggregation(8, &config);
    for words in ["the the", "the bee", "bees..."] {
        let body = format!(r#"{{"messages":[{{"content":"{words}"}}]}}"#);
        aggregation.queue.push(Box::new(ledger(&config, &body))).unwrap();
    }
    aggregation.drain_queue(aggregation.queue.len());
    aggregation
        .aggregator
        .flush(Stamp::now(), &mut |exchange| aggregation.destinations.registry.lock().record_recent(exchange, Stamp::now(), 0));
    let recorded = aggregation.destinations.registry.lock().exchanges(Order::Recent, 9);
    let tokens: Vec<_> = recorded.iter().map(|exchange| exchange.ledger.work.get(Unit::InputToken)).collect();
    // bees, and the points as one token
    assert_eq!(tokens, [Some((2, Basis::Counted)); 3]);
    assert!(recorded.iter().all(|exchange| exchange.ledger.prompt.is_none()));
}

#[test]
fn an_exchange_gets_the_wall_clock_at_its_start_when_it_is_taken() {
    let mut aggregation = aggregation(8, &config());
    let (before, started, after) = (clock::unix_ns(), Stamp::now(), clock::unix_ns());
    std::thread::sleep(Duration::from_millis(100));
    aggregation.queue.push(Box::new(Ledger::open(started, 0))).unwrap();
    assert_eq!(aggregation.queue.len(), 1);
    aggregation.drain_queue(1);
    let kept = aggregation.destinations.registry.lock().exchanges(Order::Recent, 1);
    // with room for what else runs between two readings of clocks
    let about = before - 40_000_000..after + 40_000_000;
    assert!(about.contains(&kept[0].ledger.anchor_unix_ns), "when it started, not when it was taken");
}

#[test]
fn the_queue_is_read_sooner_where_more_is_in_it() {
    let ms = Duration::from_millis;
    assert_eq!([0, 1, 64].map(pause_after), [POLL_INTERVAL; 3]);
    assert_eq!([128, 320, 1_280, 100_000, usize::MAX].map(pause_after), [ms(10), ms(4), ms(1), ms(1), ms(1)]);
}
