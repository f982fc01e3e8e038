//! Second requests: what they bring where upstreams stand still at times, or some requests take ten times as long; and what they cost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{MS, Random, SERIES, at_ms, settings};
use crate::ask::HedgeSettings;
use crate::ask::{Ask, QueueRequest, QueueSettings, Ticket, TicketState};
use crate::hedges::{Hedge, HedgeWithheld};
use crate::queue::DispatchQueue;
use crate::service::{RatioQuantiles, ServiceLine, ServiceModels, SlotsOf, WorkSeries};
use crate::upstreams::{RunEnd, RunId, Upstream, UpstreamSet};
use lapwing_ledger::Stamp;

/// It takes 5 ms and 1 ms for each unit, 98 of 100 at most 1.23 times that: lognormal noise of 0.1.
fn truth(upstreams: usize, now: Stamp) -> ServiceModels {
    let ratios = vec![RatioQuantiles { hedge: 1.23, q99: 1.26 }; 25];
    let line = ServiceLine { fixed_ns: 5e6, per_unit_ns: 1e6, samples: 1_000, unexplained: 0.0, ratios };
    let slots = |upstream: usize| SlotsOf { upstream, slots: Ok(1), speed: 1.0 };
    ServiceModels {
        made: now,
        lines: [(SERIES, line)].into_iter().collect(),
        upstreams: (0..upstreams).map(slots).collect(),
        ..ServiceModels::default()
    }
}

fn asked(units: u64, upstreams: usize, now: Stamp) -> QueueRequest {
    QueueRequest { class: 0, upstreams: UpstreamSet::first(upstreams), series: SERIES, units, arrived: now, deadline: None }
}

fn queue(upstreams: usize, hedge: HedgeSettings) -> DispatchQueue<usize> {
    let mut queue = DispatchQueue::new(QueueSettings { hedge, ..settings() }, upstreams);
    queue.publish(truth(upstreams, at_ms(0.0)), at_ms(0.0));
    queue
}

fn went(ask: Ask) -> (usize, RunId) {
    let Ask::Go(at, id) = ask else { panic!("{ask:?}") };
    (at, id)
}

fn all(upstreams: usize) -> (WorkSeries, UpstreamSet) {
    (SERIES, UpstreamSet::first(upstreams))
}

#[test]
fn a_second_one_goes_where_nothing_is_done_once_the_first_takes_long() {
    let mut queue = queue(2, HedgeSettings::default());
    let (first, id) = went(queue.ask(&asked(5, 2, at_ms(0.0)), at_ms(0.0)));
    assert_eq!(queue.hedge(id, all(2), at_ms(1.0), || 0), Hedge::NotYet(Some(at_ms(12.3))));
    let Hedge::Go(second, again) = queue.hedge(id, all(2), at_ms(12.3), || 0) else { panic!("the other is idle") };
    assert_ne!(first, second);
    assert_eq!(queue.hedge(RunId(77), all(2), at_ms(13.0), || 0), Hedge::Never, "nobody knows it");
    queue.end(id, RunEnd::Left, at_ms(14.0));
    queue.end(again, RunEnd::Answered, at_ms(14.0));
    assert_eq!(queue.running().sum::<usize>(), 0);
}

#[test]
fn who_finds_no_idle_upstream_is_woken_when_one_is() {
    let mut queue = queue(2, HedgeSettings::default());
    let (_, slow) = went(queue.ask(&asked(5, 2, at_ms(0.0)), at_ms(0.0)));
    let (_, other) = went(queue.ask(&asked(100, 2, at_ms(0.0)), at_ms(0.0)));
    assert_eq!(queue.hedge(slow, all(2), at_ms(20.0), || 7), Hedge::Withheld(HedgeWithheld::Busy));
    let Ask::Wait(ticket) = queue.ask(&asked(1, 2, at_ms(20.0)), at_ms(20.0)) else { panic!("both work") };
    queue.poll(ticket, at_ms(20.0), || 8);
    queue.end(other, RunEnd::Answered, at_ms(21.0));
    assert_eq!(queue.take_woken(), [8, 7]);
    let TicketState::Go(_, id) = queue.poll(ticket, at_ms(21.0), || 8) else { panic!("who waits goes before") };
    assert_eq!(queue.hedge(slow, all(2), at_ms(21.0), || 7), Hedge::Withheld(HedgeWithheld::Busy));
    queue.end(id, RunEnd::Answered, at_ms(22.0));
    assert_eq!(queue.take_woken(), [7]);
    assert!(matches!(queue.hedge(slow, all(2), at_ms(22.0), || 7), Hedge::Go(..)));
}

#[test]
fn one_that_waits_at_its_upstream_does_not_take_long_yet() {
    let mut queue = queue(2, HedgeSettings::default());
    let (at, first) = went(queue.ask(&asked(5, 1, at_ms(0.0)), at_ms(0.0)));
    let behind = queue.pass(at, SERIES, Some(5), at_ms(0.0));
    assert_eq!(queue.hedge(behind, all(2), at_ms(90.0), || 3), Hedge::NotYet(None));
    queue.end(first, RunEnd::Answered, at_ms(100.0));
    assert_eq!(queue.take_woken(), [3]);
    assert_eq!(queue.hedge(behind, all(2), at_ms(100.0), || 3), Hedge::NotYet(Some(at_ms(112.3))));
}

#[test]
fn no_more_than_the_budget_and_none_where_it_is_busy_on_the_whole() {
    let none = HedgeSettings { budget: 0.0, burst: 1, ..HedgeSettings::default() };
    let mut queue = queue(3, none);
    let (_, one) = went(queue.ask(&asked(5, 3, at_ms(0.0)), at_ms(0.0)));
    let (_, two) = went(queue.ask(&asked(5, 3, at_ms(0.0)), at_ms(0.0)));
    let Hedge::Go(_, again) = queue.hedge(one, all(3), at_ms(20.0), || 1) else { panic!("the burst is for one") };
    queue.end(again, RunEnd::Answered, at_ms(21.0));
    assert_eq!(queue.hedge(two, all(3), at_ms(22.0), || 2), Hedge::Withheld(HedgeWithheld::Budget));
    queue.apply(QueueSettings { hedge: HedgeSettings { max_utilisation: 0.3, ..none }, ..settings() });
    assert_eq!(queue.hedge(two, all(3), at_ms(60_000.0), || 2), Hedge::Withheld(HedgeWithheld::Utilisation));
}

#[test]
fn what_takes_long_goes_to_two_at_once_where_that_is_settled_and_little_is_done() {
    let dual = HedgeSettings { dual_above_ns: Some(50 * MS), ..HedgeSettings::default() };
    let mut queue = queue(4, dual);
    let (_, short) = went(queue.ask(&asked(5, 4, at_ms(0.0)), at_ms(0.0)));
    assert!(matches!(queue.hedge(short, all(4), at_ms(0.0), || 0), Hedge::NotYet(Some(_))));
    let (_, long) = went(queue.ask(&asked(90, 4, at_ms(0.0)), at_ms(0.0)));
    assert!(matches!(queue.hedge(long, all(4), at_ms(0.0), || 0), Hedge::Go(..)));
}

#[test]
fn the_spare_one_is_sent_only_what_it_answers_as_the_others_do() {
    let mut queue = queue(1, HedgeSettings { spare: Some(1), ..HedgeSettings::default() });
    queue.upstreams.push(Upstream::new());
    let (_, id) = went(queue.ask(&asked(5, 1, at_ms(0.0)), at_ms(0.0)));
    assert_eq!(queue.hedge(id, all(1), at_ms(20.0), || 0), Hedge::Withheld(HedgeWithheld::Busy));
    let agreeing = [SERIES].into_iter().collect();
    queue.publish(ServiceModels { agreeing, ..truth(1, at_ms(20.0)) }, at_ms(20.0));
    let Hedge::Go(1, second) = queue.hedge(id, all(1), at_ms(21.0), || 0) else { panic!("it answers the same") };
    assert_eq!(queue.hedge(id, all(1), at_ms(22.0), || 0), Hedge::Withheld(HedgeWithheld::Busy), "it is sent one at a time");
    queue.end(second, RunEnd::Answered, at_ms(23.0));
    assert!(matches!(queue.ask(&asked(5, 1, at_ms(23.0)), at_ms(23.0)), Ask::Wait(_)), "it is sent nothing else");
}

/// What is wrong with upstreams.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// Each stands still for 300 ms about every 20 s.
    Stalls,
    /// One in a hundred requests takes ten times as long.
    Outliers,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    /// A request ends at an upstream.
    Ends(usize, usize, RunId),
    /// It may take long by now.
    Looks(usize),
}

/// What so much work takes, in ms.
#[allow(clippy::cast_precision_loss)]
fn drawn(random: &mut Random, units: u64, trouble: Trouble) -> f64 {
    let takes = (5.0 + units as f64) * (0.1 * random.normal()).exp();
    if trouble == Trouble::Outliers && random.uniform() < 0.01 { 10.0 * takes } else { takes }
}

/// Three upstreams of one slot, in virtual time.
struct World {
    queue: DispatchQueue<usize>,
    random: Random,
    trouble: Trouble,
    stalls: Vec<Vec<f64>>,
    events: BinaryHeap<Reverse<(Stamp, Event)>>,
    units: Vec<u64>,
    /// What the first run of each takes, in ms: the same whoever sends it where.
    takes: Vec<f64>,
    come: Vec<f64>,
    tickets: Vec<Option<Ticket>>,
    /// Its first run, until it has been sent twice.
    firsts: Vec<Option<RunId>>,
    latencies: Vec<Option<f64>>,
    /// What each upstream has begun and not ended, one after the other.
    servers: Vec<VecDeque<(usize, RunId, bool)>>,
    worked: f64,
    of_second: f64,
    hedges: bool,
}

#[allow(clippy::cast_precision_loss)]
fn ms(at: Stamp) -> f64 {
    at.since(at_ms(0.0)) as f64 / 1e6
}

impl World {
    fn new(seed: u64, count: usize, load: f64, trouble: Trouble, hedge: Option<HedgeSettings>) -> Self {
        let mut random = Random(seed);
        let gap = (5.0 + 39.0 / 6.0) / 3.0 / load;
        let mut now = 0.0;
        let come: Vec<f64> = (0..count)
            .map(|_| {
                now += random.exponential(gap);
                now
            })
            .collect();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let units: Vec<u64> = (0..count).map(|_| [1, 2, 4, 8, 8, 16][(random.uniform() * 6.0) as usize]).collect();
        let takes = units.iter().map(|units| drawn(&mut random, *units, trouble)).collect();
        let end = now;
        let mut stalls = vec![Vec::new(); 3];
        for of_one in &mut stalls {
            let mut at = random.exponential(20_000.0);
            while trouble == Trouble::Stalls && at < end {
                of_one.push(at);
                at += 300.0 + random.exponential(20_000.0);
            }
        }
        let events = come.iter().enumerate().map(|(which, at)| Reverse((at_ms(*at), Event::Arrives(which)))).collect();
        Self {
            queue: queue(3, hedge.unwrap_or_default()),
            random,
            trouble,
            stalls,
            events,
            units,
            takes,
            come,
            tickets: vec![None; count],
            firsts: vec![None; count],
            latencies: vec![None; count],
            servers: vec![VecDeque::new(); 3],
            worked: 0.0,
            of_second: 0.0,
            hedges: hedge.is_some(),
        }
    }

    fn work(&mut self, at: usize, now: f64) {
        let Some((which, id, is_second)) = self.servers[at].front().copied() else { return };
        let takes = if is_second { drawn(&mut self.random, self.units[which], self.trouble) } else { self.takes[which] };
        self.worked += takes;
        self.of_second += if is_second { takes } else { 0.0 };
        let (mut begin, mut end) = (now, now + takes);
        for stall in &self.stalls[at] {
            if *stall < end && stall + 300.0 > begin {
                end += stall + 300.0 - begin.max(*stall);
                begin = begin.max(stall + 300.0);
            }
        }
        self.events.push(Reverse((at_ms(end), Event::Ends(which, at, id))));
    }

    fn send(&mut self, which: usize, at: usize, id: RunId, is_second: bool, now: Stamp) {
        self.servers[at].push_back((which, id, is_second));
        if self.servers[at].len() == 1 {
            self.work(at, ms(now));
        }
        if !is_second {
            self.firsts[which] = Some(id);
            self.look(which, now);
        }
    }

    /// A request that waits, or runs, looks how it stands.
    fn look(&mut self, which: usize, now: Stamp) {
        if let Some(ticket) = self.tickets[which] {
            if let TicketState::Go(at, id) = self.queue.poll(ticket, now, || which) {
                self.tickets[which] = None;
                self.send(which, at, id, false, now);
            }
        } else if let (Some(first), true, None) = (self.firsts[which], self.hedges, self.latencies[which]) {
            match self.queue.hedge(first, all(3), now, || which) {
                Hedge::Go(at, id) => {
                    self.firsts[which] = None;
                    self.send(which, at, id, true, now);
                }
                Hedge::NotYet(Some(due)) => self.events.push(Reverse((due, Event::Looks(which)))),
                Hedge::NotYet(None) | Hedge::Withheld(_) | Hedge::Never => {}
            }
        }
    }

    fn run(mut self) -> Self {
        let mut published = at_ms(0.0);
        while let Some(Reverse((now, event))) = self.events.pop() {
            if now.since(published) > 1_000 * MS {
                published = now;
                self.queue.publish(truth(3, now), now);
            }
            match event {
                Event::Arrives(which) => match self.queue.ask(&asked(self.units[which], 3, now), now) {
                    Ask::Go(at, id) => self.send(which, at, id, false, now),
                    Ask::Wait(ticket) => {
                        self.tickets[which] = Some(ticket);
                        self.look(which, now);
                    }
                    other => panic!("{other:?}"),
                },
                Event::Ends(which, at, id) => {
                    self.servers[at].pop_front();
                    self.latencies[which].get_or_insert(ms(now) - self.come[which]);
                    self.queue.end(id, RunEnd::Answered, now);
                    self.work(at, ms(now));
                }
                Event::Looks(which) => self.look(which, now),
            }
            for woken in self.queue.take_woken() {
                self.look(woken, now);
            }
        }
        self
    }

    /// The variance within requests of equal work, in ms², and the p99, in ms.
    #[allow(clippy::cast_precision_loss)]
    fn measured(&self) -> (f64, f64) {
        let mut all: Vec<f64> = self.latencies.iter().map(|latency| latency.unwrap()).collect();
        let mut unexplained = 0.0;
        for units in [1, 2, 4, 8, 16] {
            let of: Vec<f64> = all.iter().zip(&self.units).filter(|(_, own)| **own == units).map(|(ms, _)| *ms).collect();
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            unexplained += of.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>();
        }
        let count = all.len();
        all.sort_unstable_by(f64::total_cmp);
        (unexplained / count as f64, all[count * 99 / 100])
    }
}

/// What of the variance that work does not explain is left where each request goes at once to the upstream with the fewest.
fn fewest(world: &World) -> f64 {
    let mut copy = World { servers: vec![VecDeque::new(); 3], ..World::new(1, 0, 1.0, world.trouble, None) };
    copy.stalls.clone_from(&world.stalls);
    copy.units.clone_from(&world.units);
    copy.takes.clone_from(&world.takes);
    copy.come.clone_from(&world.come);
    copy.latencies = vec![None; world.come.len()];
    let arrive = |(which, at): (usize, &f64)| Reverse((at_ms(*at), Event::Arrives(which)));
    copy.events = copy.come.iter().enumerate().map(arrive).collect();
    while let Some(Reverse((now, event))) = copy.events.pop() {
        let at = match event {
            Event::Arrives(which) => {
                let turned = (0..3).map(|step| (which + step) % 3);
                let at = turned.min_by_key(|at| copy.servers[*at].len()).unwrap();
                copy.servers[at].push_back((which, RunId::NONE, false));
                if copy.servers[at].len() > 1 {
                    continue;
                }
                at
            }
            Event::Ends(which, at, _) => {
                copy.servers[at].pop_front();
                copy.latencies[which] = Some(ms(now) - copy.come[which]);
                at
            }
            Event::Looks(_) => continue,
        };
        copy.work(at, ms(now));
    }
    copy.measured().0
}

#[test]
fn they_take_away_what_work_does_not_explain_and_never_make_it_worse() {
    for (trouble, load, at_least, of_late) in [
        (Trouble::Stalls, 0.3, 0.70, 1.0),
        (Trouble::Stalls, 0.5, 0.60, 1.0),
        (Trouble::Stalls, 0.7, 0.40, 1.0),
        (Trouble::Stalls, 0.95, 0.0, 1.02),
        (Trouble::Outliers, 0.3, 0.50, 1.0),
        (Trouble::Outliers, 0.5, 0.45, 1.0),
        (Trouble::Outliers, 0.7, 0.25, 1.0),
        (Trouble::Outliers, 0.87, 0.0, 1.02),
    ] {
        let (mut sums, mut share) = ([0.0; 5], 0.0_f64);
        for seed in 1..=4 {
            let late = World::new(seed, 30_000, load, trouble, None).run();
            let hedged = World::new(seed, 30_000, load, trouble, Some(HedgeSettings::default())).run();
            let (of_late, of_hedged) = (late.measured(), hedged.measured());
            for (sum, more) in sums.iter_mut().zip([fewest(&late), of_late.0, of_late.1, of_hedged.0, of_hedged.1]) {
                *sum += more / 4.0;
            }
            share = share.max(hedged.of_second / hedged.worked);
        }
        let [fewest, late, late_p99, hedged, hedged_p99] = sums;
        let removed = 1.0 - hedged / fewest;
        println!(
            "{trouble:?} at {load}: {:.0} % less variance than the fewest requests ({:.0} % without second ones), p99 {:.2} of that \
             without, {:.2} % of time",
            100.0 * removed,
            100.0 * (1.0 - late / fewest),
            hedged_p99 / late_p99,
            100.0 * share
        );
        assert!(removed >= at_least, "{trouble:?} at {load}: {removed}");
        assert!(hedged <= of_late * late && hedged_p99 <= 1.02 * late_p99, "{trouble:?} at {load}: {hedged} {late}");
        assert!(share <= 0.02, "{trouble:?} at {load}: {share}");
    }
}
