//! What is counted of each class.

use super::queueing::{asked, goes, queue, waits};
use super::{MS, at_ms, class, settings};
use crate::ask::{Ask, Overdue, QueueRequest, QueueSettings, TicketState};
use crate::class_counts::ClassCounts;
use crate::queue::DispatchQueue;
use crate::upstreams::RunEnd;

fn classes(names: &[&str]) -> QueueSettings {
    QueueSettings { classes: names.iter().map(|name| class(name, 1, false)).collect(), ..settings() }
}

/// Sent at once, queued, refused, expired, those that wait no longer, and how long they waited together in ms.
fn counts(queue: &DispatchQueue<u32>, name: &str) -> [u64; 6] {
    let (_, counts) = queue.classes().find(|(class, _)| &*class.name == name).unwrap();
    let ClassCounts { sent, queued, refused, expired, waits } = counts;
    [*sent, *queued, *refused, *expired, waits.count(), waits.sum_ns() / MS]
}

#[test]
fn what_becomes_of_requests_is_counted_by_class_and_stays_with_its_name() {
    let mut queue = queue(classes(&["gold", "other"]), 1);
    let of = |class: usize, units: u64, at: f64, budget: Option<f64>| QueueRequest {
        class,
        deadline: budget.map(|budget| at_ms(at + budget)),
        ..asked(units, at)
    };
    let run = goes(queue.ask(&of(0, 50, 0.0, None), at_ms(0.0)));
    let waited = waits(queue.ask(&of(0, 5, 10.0, None), at_ms(10.0)));
    let left = waits(queue.ask(&of(1, 5, 10.0, None), at_ms(10.0)));
    let expires = waits(queue.ask(&of(1, 5, 10.0, Some(70.0)), at_ms(10.0)));
    assert!(matches!(queue.ask(&of(1, 500, 10.0, Some(100.0)), at_ms(10.0)), Ask::Late { .. }));
    for (ticket, number) in [(waited, 0), (left, 1), (expires, 2)] {
        assert_eq!(queue.poll(ticket, at_ms(10.0), || number), TicketState::Waiting);
    }
    queue.leave(left, at_ms(20.0));
    // the running one takes longer than expected
    assert_eq!(queue.poll(expires, at_ms(80.0), || 2), TicketState::Overdue(Overdue::Deadline));
    queue.end(run, RunEnd::Answered, at_ms(90.0));
    assert!(matches!(queue.poll(waited, at_ms(90.0), || 0), TicketState::Go(0, _)));
    assert_eq!((counts(&queue, "gold"), counts(&queue, "other")), ([1, 1, 0, 0, 1, 80], [0, 2, 1, 1, 2, 80]));
    queue.apply(classes(&["new", "gold", "other"]));
    assert_eq!((counts(&queue, "new"), counts(&queue, "gold")), ([0; 6], [1, 1, 0, 0, 1, 80]));
    queue.apply(classes(&["other"]));
    queue.apply(classes(&["gold", "other"]));
    assert_eq!(
        (counts(&queue, "gold"), counts(&queue, "other")),
        ([0; 6], [0, 2, 1, 1, 2, 80]),
        "it is another class of that name"
    );
}
