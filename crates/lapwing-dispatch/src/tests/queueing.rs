//! The queue, step by step, and whatever happens to it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{MS, SERIES, at_ms, class, settings};
use crate::ask::{Ask, Overdue, QueueRequest, QueueSettings, Ticket, TicketState};
use crate::queue::DispatchQueue;
use crate::service::{NoWindow, RatioQuantiles, ServiceLine, ServiceModels, SlotsOf};
use crate::upstreams::{RunEnd, RunId, UpstreamSet};
use lapwing_ledger::Stamp;

/// 1 ms for each unit, one slot at each upstream.
pub(crate) fn models(upstreams: usize, made: Stamp) -> ServiceModels {
    let ratios = vec![RatioQuantiles { hedge: 1.0, q99: 1.1 }; 25];
    let line = ServiceLine { fixed_ns: 0.0, per_unit_ns: 1e6, samples: 1_000, unexplained: 0.0, ratios };
    let slots = |upstream| SlotsOf { upstream, slots: Ok(1), speed: 1.0 };
    ServiceModels {
        made,
        lines: [(SERIES, line)].into_iter().collect(),
        upstreams: (0..upstreams).map(slots).collect(),
        ..ServiceModels::default()
    }
}

pub(crate) fn queue(settings: QueueSettings, upstreams: usize) -> DispatchQueue<u32> {
    let mut queue = DispatchQueue::new(settings, upstreams);
    queue.publish(models(upstreams, at_ms(0.0)), at_ms(0.0));
    queue
}

pub(crate) fn asked(units: u64, at: f64) -> QueueRequest {
    QueueRequest { class: 0, upstreams: UpstreamSet::first(1), series: SERIES, units, arrived: at_ms(at), deadline: None }
}

pub(crate) fn waits(ask: Ask) -> Ticket {
    let Ask::Wait(ticket) = ask else { panic!("{ask:?}") };
    ticket
}

pub(crate) fn goes(ask: Ask) -> RunId {
    let Ask::Go(_, id) = ask else { panic!("{ask:?}") };
    id
}

#[test]
fn who_is_due_first_goes_first_and_nobody_is_overtaken_for_long() {
    let mut queue = queue(settings(), 1);
    let run = goes(queue.ask(&asked(50, 0.0), at_ms(0.0)));
    let large = waits(queue.ask(&asked(100, 1.0), at_ms(1.0)));
    let small = waits(queue.ask(&asked(2, 40.0), at_ms(40.0)));
    for (ticket, waker) in [(large, 1), (small, 2)] {
        assert_eq!(queue.poll(ticket, at_ms(40.0), || waker), TicketState::Waiting);
    }
    queue.end(run, RunEnd::Answered, at_ms(50.0));
    assert_eq!(queue.take_woken(), [2], "40 + 2 × 2 ms is before 1 + 2 × 100 ms");
    let TicketState::Go(0, run) = queue.poll(small, at_ms(50.0), || 2) else { panic!("it was sent") };
    // who came more than 200 ms after the large one is due after it
    let late = waits(queue.ask(&asked(2, 205.0), at_ms(205.0)));
    queue.end(run, RunEnd::Answered, at_ms(206.0));
    assert!(matches!(queue.poll(large, at_ms(206.0), || 1), TicketState::Go(0, _)));
    assert_eq!(queue.poll(late, at_ms(206.0), || 3), TicketState::Waiting);
}

#[test]
fn a_further_one_is_sent_once_nobody_can_overtake_it() {
    let mut queue = queue(settings(), 1);
    goes(queue.ask(&asked(50, 0.0), at_ms(0.0)));
    let first = waits(queue.ask(&asked(3, 1.0), at_ms(1.0)));
    let _ = queue.poll(first, at_ms(1.0), || 1);
    queue.fill(at_ms(6.9));
    assert_eq!(queue.running().next(), Some(1), "it is due at 7 ms");
    queue.fill(at_ms(7.1));
    assert_eq!(queue.take_woken(), [1], "the server goes on with it at once");
    assert_eq!(queue.running().next(), Some(2));
    let second = waits(queue.ask(&asked(1, 8.0), at_ms(8.0)));
    queue.fill(at_ms(30.0));
    assert_eq!(queue.poll(second, at_ms(30.0), || 2), TicketState::Waiting, "slots and one more");
}

#[test]
fn what_is_late_is_refused_and_what_gets_late_is_not_sent() {
    let mut queue = queue(settings(), 1);
    let run = goes(queue.ask(&asked(50, 0.0), at_ms(0.0)));
    let with = |units: u64, at: f64, budget: f64| QueueRequest { deadline: Some(at_ms(at + budget)), ..asked(units, at) };
    // 40 ms are left of the running one
    assert_eq!(
        queue.ask(&with(20, 10.0, 61.0), at_ms(10.0)),
        Ask::Late { wait_ns: 40 * MS, drain_ns: 40 * MS },
        "40 ms + 20 ms + 2 ms"
    );
    let ticket = waits(queue.ask(&with(20, 10.0, 63.0), at_ms(10.0)));
    let _ = queue.poll(ticket, at_ms(10.0), || 7);
    assert_eq!(queue.until(ticket), Some(at_ms(53.0).plus(1)), "it needs 20 ms");
    // the running one takes longer than expected
    queue.end(run, RunEnd::Answered, at_ms(54.0));
    assert_eq!(queue.take_woken(), [7]);
    assert_eq!(queue.poll(ticket, at_ms(54.0), || 7), TicketState::Overdue(Overdue::Deadline));
    assert_eq!((queue.running().next(), queue.waiting()), (Some(0), 0));
}

#[test]
fn one_who_gets_urgent_goes_before_one_who_can_wait() {
    let mut queue = queue(settings(), 1);
    let run = goes(queue.ask(&asked(50, 0.0), at_ms(0.0)));
    let large = QueueRequest { deadline: Some(at_ms(180.0)), ..asked(90, 1.0) };
    let large = waits(queue.ask(&large, at_ms(1.0)));
    let small = waits(queue.ask(&asked(40, 2.0), at_ms(2.0)));
    for (ticket, waker) in [(large, 1), (small, 2)] {
        let _ = queue.poll(ticket, at_ms(2.0), || waker);
    }
    queue.end(run, RunEnd::Answered, at_ms(50.0));
    // due are 181 and 82 ms; but the large one must begin by 81 ms, and the other takes until 90 ms
    assert_eq!(queue.take_woken(), [1]);
}

#[test]
fn classes_share_by_weight_and_the_background_yields() {
    let classes = vec![class("a", 3, false), class("b", 1, false), class("night", 9, true)];
    let mut queue = queue(QueueSettings { classes, rejects: false, ..settings() }, 1);
    let mut run = goes(queue.ask(&asked(5, 0.0), at_ms(0.0)));
    let mut tickets = BTreeMap::new();
    for number in 0..90_u32 {
        let class = number as usize % 3;
        let ticket = waits(queue.ask(&QueueRequest { class, ..asked(5, 0.0) }, at_ms(0.0)));
        let _ = queue.poll(ticket, at_ms(0.0), || number);
        tickets.insert(number, (class, ticket));
    }
    let mut order = Vec::new();
    let mut now = 5.0;
    while queue.waiting() > 0 {
        queue.end(run, RunEnd::Answered, at_ms(now));
        for woken in queue.take_woken() {
            let (class, ticket) = tickets[&woken];
            order.push(class);
            let TicketState::Go(0, id) = queue.poll(ticket, at_ms(now), || woken) else { panic!("it was sent") };
            run = id;
        }
        // before any of them is due, so one at a time
        now += 0.01;
    }
    assert_eq!(order.len(), 90);
    let first: Vec<_> = order.iter().take(40).collect();
    assert_eq!(first.iter().filter(|class| ***class == 0).count(), 30, "{order:?}");
    assert!(order.iter().take(60).all(|class| *class != 2) && order.iter().skip(60).all(|class| *class == 2), "{order:?}");
}

#[test]
fn who_waits_keeps_the_class_of_its_name_when_the_settings_change() {
    let classes = |classes: &[(&str, bool)]| {
        let classes =
            classes.iter().map(|(name, is_background)| class(name, 1, *is_background)).chain([class("other", 1, false)]);
        QueueSettings { classes: classes.collect(), rejects: false, ..settings() }
    };
    let mut queue = queue(classes(&[("night", true), ("day", false)]), 1);
    let mut run = goes(queue.ask(&asked(5, 0.0), at_ms(0.0)));
    let mut ask = |class: usize, number: u32| {
        let ticket = waits(queue.ask(&QueueRequest { class, ..asked(5, 0.0) }, at_ms(0.0)));
        let _ = queue.poll(ticket, at_ms(0.0), || number);
        ticket
    };
    let tickets: Vec<_> = [0, 1, 2].into_iter().zip(0..).map(|(class, number)| ask(class, number)).collect();
    // `night` moves, `day` goes, and a new one has its place
    queue.apply(classes(&[("gone", true), ("evening", false), ("night", true)]));
    let by_class =
        |queue: &DispatchQueue<u32>| queue.waiting_by_class().map(|(class, count, _)| (class, count)).collect::<Vec<_>>();
    assert_eq!(by_class(&queue), [(2, 1), (3, 1), (3, 1)]);
    queue.apply(classes(&[("night", true)]));
    assert_eq!(by_class(&queue), [(0, 1), (1, 1), (1, 1)]);
    let mut order = Vec::new();
    for step in [5.0, 5.1, 5.2] {
        queue.end(run, RunEnd::Answered, at_ms(step));
        for woken in queue.take_woken() {
            order.push(woken);
            let TicketState::Go(0, id) = queue.poll(tickets[woken as usize], at_ms(step), || 9) else { panic!("it was sent") };
            run = id;
        }
    }
    assert_eq!(order, [1, 2, 0], "the one in the background goes last");
}

#[test]
fn without_a_fresh_model_nobody_waits() {
    let mut queue = queue(settings(), 1);
    let _ = goes(queue.ask(&asked(5, 0.0), at_ms(0.0)));
    let ticket = waits(queue.ask(&asked(5, 0.0), at_ms(0.0)));
    let _ = queue.poll(ticket, at_ms(0.0), || 1);
    assert_eq!(queue.ask(&asked(5, 10_001.0), at_ms(10_001.0)), Ask::Unknown, "who learns is gone");
    queue.fill(at_ms(10_001.0));
    assert_eq!(queue.take_woken(), [1]);
    queue.publish(models(1, at_ms(10_001.0)), at_ms(10_001.0));
    let ticket = waits(queue.ask(&asked(5, 10_001.0), at_ms(10_001.0)));
    let _ = queue.poll(ticket, at_ms(10_001.0), || 2);
    queue.recheck(true, at_ms(10_001.5));
    assert_eq!(queue.take_woken(), [2], "to see how the upstream takes it");
    goes(queue.ask(&asked(5, 10_001.5), at_ms(10_001.5)));
    queue.recheck(false, at_ms(10_001.6));
    waits(queue.ask(&asked(5, 10_001.6), at_ms(10_001.6)));
    let refused = SlotsOf { upstream: 0, slots: Err(NoWindow::NotOneByOne { unexplained: 1.0 }), speed: 1.0 };
    queue.publish(ServiceModels { upstreams: vec![refused], ..models(1, at_ms(10_002.0)) }, at_ms(10_002.0));
    assert_eq!(queue.ask(&asked(5, 10_003.0), at_ms(10_003.0)), Ask::Unknown);
}

#[test]
fn who_has_waited_for_long_enough_goes_by_himself_and_too_many_are_not_held() {
    let mut queue = queue(QueueSettings { max_waiting: 1, max_wait_ns: 30 * MS, ..settings() }, 1);
    let _ = goes(queue.ask(&asked(500, 0.0), at_ms(0.0)));
    let ticket = waits(queue.ask(&asked(50, 1.0), at_ms(1.0)));
    assert_eq!(queue.ask(&asked(5, 2.0), at_ms(2.0)), Ask::Full);
    assert_eq!(queue.until(ticket), Some(at_ms(31.0)));
    assert_eq!(queue.poll(ticket, at_ms(30.9), || 1), TicketState::Waiting);
    assert_eq!(queue.poll(ticket, at_ms(31.1), || 1), TicketState::Overdue(Overdue::Wait));
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn an_upstream_that_is_away_is_left_out_while_another_is_there() {
    let mut queue = queue(settings(), 2);
    let both = |units, at| QueueRequest { upstreams: UpstreamSet::first(2), ..asked(units, at) };
    let away = |at: usize| [at].into_iter().collect::<UpstreamSet>();
    queue.note_away(away(0), at_ms(0.0));
    assert!(matches!(queue.ask(&both(50, 0.0), at_ms(0.0)), Ask::Go(1, _)));
    let ticket = waits(queue.ask(&both(5, 1.0), at_ms(1.0)));
    let _ = queue.poll(ticket, at_ms(1.0), || 1);
    queue.note_away(UpstreamSet::default(), at_ms(2.0));
    assert_eq!(queue.take_woken(), [1]);
    assert!(matches!(queue.poll(ticket, at_ms(2.0), || 1), TicketState::Go(0, _)));
    queue.note_away(UpstreamSet::first(2), at_ms(3.0));
    assert_eq!(queue.ask(&both(5, 3.0), at_ms(3.0)), Ask::Unknown, "as without a queue");
}

/// What happens to a queue.
#[derive(Clone, Debug)]
enum Event {
    Ask { units: u64, class: usize, upstreams: u8, budget: Option<u64> },
    End(usize),
    Leave(usize),
    Poll(usize),
    Away(u8),
    Publish,
    Pass(usize),
    Move(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (1_u64..200, 0_usize..3, 1_u8..8, prop::option::of(1_u64..500))
            .prop_map(|(units, class, upstreams, budget)| Event::Ask { units, class, upstreams, budget }),
        4 => any::<usize>().prop_map(Event::End),
        1 => any::<usize>().prop_map(Event::Leave),
        2 => any::<usize>().prop_map(Event::Poll),
        1 => (0_u8..8).prop_map(Event::Away),
        1 => Just(Event::Publish),
        1 => (0_usize..3).prop_map(Event::Pass),
        1 => (any::<usize>(), 0_usize..3).prop_map(|(run, to)| Event::Move(run, to)),
    ]
}

fn set(bits: u8) -> UpstreamSet {
    (0..3).filter(|at| bits >> at & 1 == 1).collect()
}

proptest! {
    /// Whoever asks is sent, refused or dropped, once; at an upstream are slots and one more, and those who did not ask.
    #[test]
    fn nobody_is_lost_and_nobody_is_sent_twice(events in prop::collection::vec((event(), 0_u32..40), 1..200)) {
        let classes = vec![class("a", 1, false), class("b", 1, false), class("night", 1, true)];
        let mut queue = queue(QueueSettings { classes, max_waiting: 20, ..settings() }, 3);
        let (mut now, mut number) = (0.0, 0_u32);
        let mut waiting: BTreeMap<u32, Ticket> = BTreeMap::new();
        let mut running: Vec<RunId> = Vec::new();
        // how many were sent at once, and how many waited
        let mut asked = (0, 0);
        for (event, gap) in events {
            now += f64::from(gap);
            let at = at_ms(now);
            match event {
                Event::Ask { units, class, upstreams, budget } => {
                    number += 1;
                    #[allow(clippy::cast_precision_loss)]
                    let deadline = budget.map(|budget| at_ms(now + budget as f64));
                    let one = QueueRequest { class, upstreams: set(upstreams), series: SERIES, units, arrived: at, deadline };
                    match queue.ask(&one, at) {
                        Ask::Go(to, id) => {
                            prop_assert!(one.upstreams.contains(to));
                            asked.0 += 1;
                            running.push(id);
                        }
                        Ask::Wait(ticket) => {
                            prop_assert_eq!(queue.poll(ticket, at, || number), TicketState::Waiting);
                            asked.1 += 1;
                            waiting.insert(number, ticket);
                        }
                        Ask::Late { .. } | Ask::Unknown | Ask::Full => {}
                    }
                }
                Event::End(which) if !running.is_empty() => {
                    let how = [RunEnd::Answered, RunEnd::Failed, RunEnd::Left][which % 3];
                    queue.end(running.swap_remove(which % running.len()), how, at);
                }
                Event::Move(which, to) if !running.is_empty() => queue.moved(running[which % running.len()], to, at),
                Event::Leave(which) if !waiting.is_empty() => {
                    let (number, ticket) = waiting.iter().nth(which % waiting.len()).map(|(number, ticket)| (*number, *ticket)).unwrap();
                    waiting.remove(&number);
                    queue.leave(ticket, at);
                }
                Event::Poll(which) if !waiting.is_empty() => {
                    let (number, ticket) = waiting.iter().nth(which % waiting.len()).map(|(number, ticket)| (*number, *ticket)).unwrap();
                    look(&mut queue, &mut waiting, &mut running, (number, ticket), at);
                }
                Event::Away(which) => queue.note_away(set(which), at),
                Event::Publish => queue.publish(models(3, at), at),
                Event::Pass(to) => running.push(queue.pass(to, SERIES, Some(3), at)),
                Event::End(_) | Event::Move(..) | Event::Leave(_) | Event::Poll(_) => {}
            }
            for woken in queue.take_woken() {
                if let Some(ticket) = waiting.get(&woken).copied() {
                    look(&mut queue, &mut waiting, &mut running, (woken, ticket), at);
                }
            }
            prop_assert_eq!(queue.waiting(), waiting.len());
            prop_assert_eq!(queue.running().sum::<usize>(), running.len());
        }
        // everything ends
        let at = at_ms(now + 1e6);
        for (_, ticket) in waiting {
            match queue.poll(ticket, at, || 0) {
                TicketState::Go(_, id) => queue.end(id, RunEnd::Answered, at),
                state => prop_assert!(matches!(state, TicketState::Overdue(_)), "{:?}", state),
            }
        }
        for id in running {
            queue.end(id, RunEnd::Answered, at);
        }
        prop_assert_eq!((queue.waiting(), queue.running().sum::<usize>()), (0, 0));
        let counted = queue.classes().map(|(_, counts)| (counts.sent, counts.queued));
        prop_assert_eq!(counted.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)), asked);
        prop_assert!(queue.classes().all(|(_, counts)| counts.queued == counts.waits.count() && counts.expired <= counts.queued));
    }
}

fn look(
    queue: &mut DispatchQueue<u32>,
    waiting: &mut BTreeMap<u32, Ticket>,
    running: &mut Vec<RunId>,
    (number, ticket): (u32, Ticket),
    at: Stamp,
) {
    match queue.poll(ticket, at, || number) {
        TicketState::Waiting => return,
        TicketState::Go(_, id) => running.push(id),
        TicketState::Overdue(_) => {}
    }
    waiting.remove(&number);
}
