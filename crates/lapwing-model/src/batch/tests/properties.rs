//! Properties that hold for every sequence of calls and all limits, checked on random ones.

use proptest::prelude::*;

use super::super::{CallCost, Config, Item, Next, Policy, Tuning, Waiting};
use lapwing_engine::clock::Stamp;

#[derive(Clone, Debug)]
enum Step {
    Push { rows: usize, tokens: usize, patience_ns: Option<u64> },
    Ask,
    Pass { ns: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![Just(0_usize), 1..20_usize, 1..600_usize];
    let push = (1..4_usize, length, proptest::option::weighted(0.3, 0..3_000_000_u64))
        .prop_map(|(rows, tokens, patience_ns)| Step::Push { rows, tokens, patience_ns });
    let pass = prop_oneof![0..2_000_u64, 0..3_000_000_u64].prop_map(|ns| Step::Pass { ns });
    proptest::collection::vec(prop_oneof![5 => push, 3 => Just(Step::Ask), 2 => pass], 1..150)
}

fn configs() -> impl Strategy<Value = Config> {
    let policy = prop_oneof![2 => Just(Policy::Adaptive), 1 => (1..9_usize).prop_map(|calls| Policy::Fixed { calls })];
    (policy, 1..12_usize, 1..20_usize, 1..1500_usize, prop_oneof![Just(0), 0..500_000_u64], 0..2_000_000_u64, 1..60_usize)
        .prop_map(|(policy, max_calls, max_rows, max_tokens, min_wait_ns, max_wait_ns, queue_calls)| Config {
            policy,
            max_calls,
            max_rows,
            max_tokens,
            min_wait_ns,
            max_wait_ns,
            queue_calls,
        })
}

/// The test's own record of a waiting call, independent of the code under test.
#[derive(Clone, Debug)]
struct Known {
    number: usize,
    cost: CallCost,
    arrived: Stamp,
    deadline: Option<Stamp>,
    passed: u32,
}

struct Bench {
    config: Config,
    tuning: Tuning,
    waiting: Waiting<usize>,
    known: Vec<Known>,
    now: Stamp,
    pushed: usize,
    given: usize,
}

impl Bench {
    fn push(&mut self, cost: CallCost, patience_ns: Option<u64>) -> Result<(), TestCaseError> {
        let (number, arrived) = (self.pushed, self.now);
        let deadline = patience_ns.map(|ns| arrived.plus(ns));
        let taken = self.waiting.push(Item { payload: number, cost, arrived, deadline });
        prop_assert_eq!(taken.is_ok(), self.known.len() < self.config.queue_calls, "refused exactly where full");
        if taken.is_ok() {
            self.known.push(Known { number, cost, arrived, deadline, passed: 0 });
            self.pushed += 1;
        }
        Ok(())
    }

    /// Asks for a batch, checks it, and runs it in simulated time.
    fn ask(&mut self, closing: bool) -> Result<Next, TestCaseError> {
        let (mut into, mut expired) = (Vec::new(), Vec::new());
        let next = self.waiting.poll(self.now, closing, &mut into, &mut expired);
        for item in &expired {
            let known = self.take(item)?;
            prop_assert!(known.deadline.is_some_and(|deadline| deadline <= self.now), "expired before its deadline");
        }
        match next {
            Next::Idle => prop_assert!(self.known.is_empty()),
            Next::Wait(until) => self.may_wait(until)?,
            Next::Run => self.run(&into)?,
        }
        prop_assert_eq!(into.is_empty(), next != Next::Run);
        prop_assert_eq!(self.waiting.len(), self.known.len());
        prop_assert_eq!(self.waiting.units(), self.known.iter().map(|known| known.cost.units()).sum::<usize>());
        Ok(next)
    }

    fn take(&mut self, item: &Item<usize>) -> Result<Known, TestCaseError> {
        let at = self.known.iter().position(|known| known.number == item.payload);
        self.given += 1;
        at.map(|at| self.known.remove(at)).ok_or_else(|| TestCaseError::fail("given out twice, or never taken in"))
    }

    fn may_wait(&self, until: Stamp) -> Result<(), TestCaseError> {
        prop_assert!(until > self.now);
        let longest = self.config.max_wait_ns.max(self.config.min_wait_ns);
        prop_assert!(self.known.iter().any(|known| until <= known.arrived.plus(longest)), "waits longer than it may");
        for known in &self.known {
            let own = self.waiting.fit().forward_ns(known.cost.units()) as u64;
            prop_assert!(known.deadline.is_none_or(|deadline| until.plus(own) <= deadline.plus(1)), "waits past a deadline");
        }
        Ok(())
    }

    fn run(&mut self, into: &[Item<usize>]) -> Result<(), TestCaseError> {
        let total = into.iter().fold(CallCost::default(), |sum, item| sum.plus(item.cost));
        prop_assert!(into.len() <= self.config.max_calls);
        if into.len() > 1 {
            prop_assert!(total.rows <= self.config.max_rows && total.units() <= self.config.max_tokens);
        }
        let overdue = self.known.iter().any(|known| known.passed >= self.tuning.overtakes);
        let first = if overdue { into.iter().min_by_key(|item| item.payload) } else { into.first() };
        if let Some(Item { cost, deadline: Some(deadline), .. }) = first {
            let done = |cost: CallCost| self.now.plus(self.waiting.fit().forward_ns(cost.units()) as u64);
            prop_assert!(done(*cost) > *deadline || done(total) <= *deadline, "made late by those that run with it");
        }
        let mut youngest = 0;
        for item in into {
            let known = self.take(item)?;
            prop_assert!(known.deadline.is_none_or(|deadline| deadline > self.now), "run after its deadline");
            youngest = youngest.max(known.number);
        }
        for known in self.known.iter_mut().filter(|known| known.number < youngest) {
            known.passed += 1;
            prop_assert!(known.passed <= self.tuning.overtakes, "passed too often: {:?}", known);
            if let Policy::Fixed { .. } = self.config.policy {
                prop_assert!(false, "out of order: {:?}", known);
            }
        }
        let took = 200_000 + 1_000 * total.units() as u64;
        self.waiting.observe(total, took);
        self.now = self.now.plus(took);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_call_is_given_out_once_in_time_within_the_limits_and_not_passed_too_often(
        steps in steps(),
        config in configs(),
        overtakes in 1..5_u32,
        has_tokens in any::<bool>(),
    ) {
        let tuning = Tuning { overtakes, ..Tuning::default() };
        let waiting = Waiting::new(config, tuning);
        let now = Stamp::default().plus(1);
        let mut bench = Bench { config, tuning, waiting, known: Vec::new(), now, pushed: 0, given: 0 };
        for step in steps {
            match step {
                // a model has tokens or has none
                Step::Push { rows, tokens, patience_ns } => {
                    let tokens = if has_tokens { tokens.max(1) } else { 0 };
                    bench.push(CallCost { rows, tokens }, patience_ns)?;
                }
                Step::Ask => {
                    bench.ask(false)?;
                }
                Step::Pass { ns } => bench.now = bench.now.plus(ns),
            }
        }
        let left = bench.known.len();
        let mut asked = 0;
        while bench.ask(true)? != Next::Idle {
            asked += 1;
            prop_assert!(asked <= left, "a closing queue gives a batch each time");
        }
        prop_assert_eq!(bench.given, bench.pushed);
    }

    #[test]
    fn a_wait_ends(steps in steps(), config in configs()) {
        let waiting = Waiting::new(config, Tuning::default());
        let tuning = Tuning::default();
        let now = Stamp::default().plus(1);
        let mut bench = Bench { config, tuning, waiting, known: Vec::new(), now, pushed: 0, given: 0 };
        for step in steps {
            if let Step::Push { rows, tokens, patience_ns } = step {
                bench.push(CallCost { rows, tokens }, patience_ns)?;
            }
        }
        // no more calls come, and all are served although the queue is not closed
        for _ in 0..10_000 {
            match bench.ask(false)? {
                Next::Idle => return Ok(()),
                Next::Wait(until) => bench.now = until,
                Next::Run => {}
            }
        }
        prop_assert!(false, "still waiting");
    }
}
