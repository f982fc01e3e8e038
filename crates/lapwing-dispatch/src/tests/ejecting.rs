//! Upstreams that fail or stand still, and how they come back.

use super::queueing::{asked, goes, models, queue, waits};
use super::{SERIES, at_ms, settings};
use crate::ask::{Ask, QueueRequest, TicketState};
use crate::service::{ServiceModels, SlotsOf};
use crate::upstreams::{RunEnd, UpstreamSet};

#[test]
fn an_upstream_that_fails_is_left_alone_for_a_while_and_comes_back_one_at_a_time() {
    let mut queue = queue(settings(), 2);
    let both = |units, at| QueueRequest { upstreams: UpstreamSet::first(2), ..asked(units, at) };
    let mut now = 0.0;
    // the first fails at once, so it is always free, and is tried again once it is not doubted any more
    for _ in 0..20 {
        let Ask::Go(at, id) = queue.ask(&both(5, now), at_ms(now)) else { panic!("both are free") };
        queue.end(id, if at == 0 { RunEnd::Failed } else { RunEnd::Answered }, at_ms(now + 1.0));
        now += 60.0;
    }
    assert_eq!((queue.ejections(), queue.ejected(at_ms(now)).contains(0)), (1, true));
    for _ in 0..20 {
        let Ask::Go(at, id) = queue.ask(&both(5, now), at_ms(now)) else { panic!("one is free") };
        assert_eq!(at, 1);
        queue.end(id, RunEnd::Failed, at_ms(now));
        now += 1.0;
    }
    assert_eq!(queue.ejections(), 1, "at most half");
    let later = 8_000.0;
    queue.publish(models(2, at_ms(later)), at_ms(later));
    let mut ask = |at: f64| queue.ask(&both(5, at), at_ms(at));
    let gone: Vec<_> = (0..3).map(|_| ask(later)).collect();
    let [Ask::Go(_, _), Ask::Go(_, _), Ask::Wait(ticket)] = gone[..] else { panic!("{gone:?}") };
    let first = gone.iter().find_map(|one| if let Ask::Go(0, id) = one { Some(*id) } else { None }).unwrap();
    queue.end(first, RunEnd::Answered, at_ms(later + 5.0));
    assert!(matches!(queue.poll(ticket, at_ms(later + 5.0), || 1), TicketState::Go(0, _)), "it answers again");
}

#[test]
fn an_upstream_that_stands_still_gets_nothing_more() {
    let mut queue = queue(settings(), 3);
    let all = |units, at| QueueRequest { upstreams: UpstreamSet::first(3), ..asked(units, at) };
    let runs: Vec<_> = (0..3).map(|_| queue.ask(&all(10, 0.0), at_ms(0.0))).collect();
    let at = |which: usize| {
        runs.iter().find_map(|one| if let Ask::Go(at, id) = one { (*at == which).then_some(*id) } else { None }).unwrap()
    };
    queue.end(at(1), RunEnd::Answered, at_ms(10.0));
    queue.end(at(2), RunEnd::Answered, at_ms(10.0));
    for _ in 0..2 {
        goes(queue.ask(&all(10, 11.5), at_ms(11.5)));
    }
    for number in 0..2 {
        let ticket = waits(queue.ask(&all(1, 11.5), at_ms(11.5)));
        let _ = queue.poll(ticket, at_ms(11.5), || number);
    }
    // both are due by now, so that each upstream would get one more; the first has ended nothing since its q99 of 11 ms
    queue.fill(at_ms(14.0));
    assert_eq!((queue.running().collect::<Vec<_>>(), queue.waiting()), (vec![1, 2, 2], 0));
}

#[test]
fn an_upstream_with_several_slots_comes_back_with_one_more_for_each_answer() {
    let mut queue = queue(settings(), 2);
    let slots = |slots: u32, at: f64| {
        let known = |upstream| SlotsOf { upstream, slots: Ok(slots), speed: 1.0 };
        ServiceModels { upstreams: (0..2).map(known).collect(), ..models(2, at_ms(at)) }
    };
    queue.publish(slots(4, 0.0), at_ms(0.0));
    let one_of = |at: usize, when: f64| QueueRequest { upstreams: [at].into_iter().collect(), ..asked(5, when) };
    for _ in 0..5 {
        let id = queue.pass(0, SERIES, Some(5), at_ms(1.0));
        queue.end(id, RunEnd::Failed, at_ms(1.0));
    }
    assert_eq!(queue.ejections(), 1);
    let mut now = 6_000.0;
    queue.publish(slots(4, now), at_ms(now));
    // as many as it is sent at once: none is ever one to go on with, though all are due
    let mut running = Vec::new();
    let mut tickets = Vec::new();
    for _ in 0..20 {
        match queue.ask(&one_of(0, 0.0), at_ms(now)) {
            Ask::Go(0, id) => running.push(id),
            ask => tickets.push(waits(ask)),
        }
    }
    let mut windows = Vec::new();
    while !running.is_empty() {
        windows.push(running.len());
        now += 5.0;
        queue.end(running.remove(0), RunEnd::Answered, at_ms(now));
        tickets.retain(|ticket| match queue.poll(*ticket, at_ms(now), || 0) {
            TicketState::Go(0, id) => {
                running.push(id);
                false
            }
            state => state == TicketState::Waiting,
        });
    }
    // four, and one to go on with
    assert_eq!(windows[..6], [1, 2, 3, 5, 5, 5], "{windows:?}");
    assert!(tickets.is_empty());
    // what fails again is left alone again, and begins again with one
    for failed in 0..5 {
        let id = queue.pass(0, SERIES, Some(5), at_ms(now + f64::from(failed)));
        queue.end(id, RunEnd::Failed, at_ms(now + f64::from(failed)));
    }
    now += 6_000.0;
    queue.publish(slots(4, now), at_ms(now));
    let first = goes(queue.ask(&one_of(0, now), at_ms(now)));
    waits(queue.ask(&one_of(0, now), at_ms(now)));
    // who leaves says nothing of it
    queue.end(first, RunEnd::Left, at_ms(now));
    assert_eq!((queue.ejections(), queue.running().next()), (2, Some(1)));
}
