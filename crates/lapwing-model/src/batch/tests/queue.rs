//! The queue with real threads.

use std::sync::Arc;
use std::thread;

use super::super::{CallCost, Config, Item, Policy, Queue, QueueError, Taken};
use lapwing_engine::clock::Stamp;

fn item<T>(payload: T, deadline: Option<Stamp>) -> Item<T> {
    Item { payload, cost: CallCost { rows: 1, tokens: 8 }, arrived: Stamp::now(), deadline }
}

#[test]
fn two_producers_and_an_executor_lose_and_double_nothing() {
    const EACH: usize = 50_000;
    let queue = Arc::new(Queue::new(Config { queue_calls: 300, max_calls: 32, ..Config::default() }));
    let producers = [0, 1].map(|which| {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let mut full = 0_usize;
            for i in 0..EACH {
                while let Err(refused) = queue.push(item(which * EACH + i, None)) {
                    assert!(matches!(refused, QueueError::Full { waiting } if waiting >= 300));
                    full += 1;
                    thread::yield_now();
                }
            }
            full
        })
    });
    let executor = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            let (mut into, mut expired, mut seen) = (Vec::new(), Vec::new(), vec![0_u8; 2 * EACH]);
            let mut batches = 0;
            while queue.take(&mut into, &mut expired) == Taken::Calls {
                assert!(!into.is_empty() && into.len() <= 32 && expired.is_empty());
                for item in &into {
                    seen[item.payload] += 1;
                }
                queue.observe(CallCost { rows: into.len(), tokens: 8 * into.len() }, 5_000 + 10 * into.len() as u64);
                batches += 1;
            }
            (seen, batches)
        }
    });
    for producer in producers {
        producer.join().unwrap();
    }
    queue.close();
    let (seen, batches) = executor.join().unwrap();
    assert!(seen.iter().all(|&times| times == 1));
    assert!(batches >= 2 * EACH / 32);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_closed_queue_returns_the_waiting_calls_and_then_closed() {
    // without the close, it would wait practically forever for a batch of 100
    let policy = Policy::Fixed { calls: 100 };
    let queue = Queue::new(Config { policy, max_wait_ns: u64::MAX / 4, ..Config::default() });
    for i in 0..3 {
        queue.push(item(i, None)).unwrap();
    }
    let (mut into, mut expired) = (Vec::new(), Vec::new());
    let taken = thread::scope(|scope| {
        let executor = scope.spawn(|| queue.take(&mut into, &mut expired));
        queue.close();
        executor.join().unwrap()
    });
    assert_eq!((taken, into.len()), (Taken::Calls, 3));
    assert_eq!(queue.push(item(3, None)), Err(QueueError::Closed));
    assert_eq!(queue.take(&mut into, &mut expired), Taken::Closed);
    assert!(into.is_empty() && expired.is_empty());
}

#[test]
fn a_sleeping_executor_is_woken_by_a_call_by_its_batch_and_by_a_deadline() {
    let policy = Policy::Fixed { calls: 2 };
    let queue = Queue::new(Config { policy, max_wait_ns: u64::MAX / 4, ..Config::default() });
    let (mut into, mut expired) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let executor = scope.spawn(|| queue.take(&mut into, &mut expired));
        queue.push(item("a", None)).unwrap();
        queue.push(item("b", None)).unwrap();
        assert_eq!(executor.join().unwrap(), Taken::Calls);
    });
    assert_eq!(into.iter().map(|item| item.payload).collect::<Vec<_>>(), ["a", "b"]);
    // the forward time is not known yet, so it may start until the deadline; the batch of two never fills
    queue.push(item("late", Some(Stamp::now().plus(2_000_000)))).unwrap();
    assert_eq!(queue.take(&mut into, &mut expired), Taken::Calls);
    assert_eq!(into.len() + expired.len(), 1);
    queue.push(item("too late", Some(Stamp::now()))).unwrap();
    assert_eq!(queue.take(&mut into, &mut expired), Taken::Calls);
    assert_eq!((into.len(), expired.len()), (0, 1));
    assert_eq!(expired[0].payload, "too late");
}
