//! The scheduler of a simulation: it holds the tasks and draws which step is next.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::task::coop::poll_proceed;

use super::random::{self, draw};
use super::wire;

/// A task's turn, in units of the runtime's budget.
const TURN: u32 = 128;
/// The runtime calls wakers that it put off once the main future has yielded.
const YIELDS_TO_REST: u8 = 2;

type Task = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    /// Tasks that were spawned while another one runs.
    static SPAWNED: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs a simulation.
#[must_use]
pub fn is_running() -> bool {
    IS_RUNNING.get()
}

/// Runs `task` in this thread's simulation.
pub fn spawn(task: impl Future<Output: 'static> + 'static) {
    SPAWNED.with_borrow_mut(|spawned| {
        spawned.push(Box::pin(async {
            task.await;
        }));
    });
}

/// What a simulation has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// What was waited for has happened.
    Over,
    /// Nothing can happen, whatever was waited for has not, and no timer may be waited for.
    Rests,
    /// It takes more steps than it may.
    Endless,
}

/// The tasks of this thread until it is dropped.
pub struct Simulation {
    tasks: Vec<Option<(Task, Arc<TaskWaker>)>>,
    main: Arc<MainWaker>,
    steps: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("steps", &self.steps).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct MainWaker {
    /// Nothing can happen before a timer fires.
    is_parked: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

#[derive(Debug)]
struct TaskWaker {
    is_woken: AtomicBool,
    main: Arc<MainWaker>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Relaxed);
        if self.main.is_parked.load(Relaxed) {
            self.main.waker.lock().iter().for_each(Waker::wake_by_ref);
        }
    }
}

/// A step that can be taken.
enum Step {
    Task(usize),
    Wires,
}

impl Simulation {
    /// Begins a simulation on this thread: whatever is drawn follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        random::begin(Some(seed));
        wire::clear();
        IS_RUNNING.set(true);
        Self { tasks: Vec::new(), main: Arc::default(), steps: 0 }
    }

    /// How many steps were taken.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes steps until `is_over`, or until nothing more can happen. With `may_wait`, the runtime's clock, which must be paused, then moves to
    /// the next timer, as long as it allows that.
    pub async fn run(&mut self, most: u64, is_over: impl Fn() -> bool, may_wait: impl Fn() -> bool) -> Progress {
        let (end, mut idle) = (self.steps + most, 0);
        poll_fn(|cx| {
            self.main.is_parked.store(false, Relaxed);
            if is_over() {
                return Poll::Ready(Progress::Over);
            }
            if self.steps >= end {
                return Poll::Ready(Progress::Endless);
            }
            if self.step() {
                idle = 0;
            } else if idle < YIELDS_TO_REST {
                idle += 1;
            } else if may_wait() {
                *self.main.waker.lock() = Some(cx.waker().clone());
                self.main.is_parked.store(true, Relaxed);
                return Poll::Pending;
            } else {
                return Poll::Ready(Progress::Rests);
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Takes one step. Returns whether there was one to take.
    fn step(&mut self) -> bool {
        self.adopt();
        let woken = self.tasks.iter().enumerate();
        let woken =
            woken.filter_map(|(at, task)| task.as_ref().is_some_and(|(_, waker)| waker.is_woken.load(Relaxed)).then_some(at));
        let mut can: Vec<Step> = woken.map(Step::Task).collect();
        can.extend((0..wire::pending().min(3)).map(|_| Step::Wires));
        if can.is_empty() {
            return false;
        }
        self.steps += 1;
        match can[draw(can.len())] {
            Step::Wires => wire::step(),
            Step::Task(at) => self.poll(at),
        }
        true
    }

    /// Takes over what was spawned.
    fn adopt(&mut self) {
        for task in SPAWNED.take() {
            let waker = Arc::new(TaskWaker { is_woken: AtomicBool::new(true), main: self.main.clone() });
            match self.tasks.iter_mut().find(|slot| slot.is_none()) {
                Some(slot) => *slot = Some((task, waker)),
                None => self.tasks.push(Some((task, waker))),
            }
        }
    }

    fn poll(&mut self, at: usize) {
        let Some((task, woken)) = &mut self.tasks[at] else { return };
        woken.is_woken.store(false, Relaxed);
        tracing::trace!(task = at, step = self.steps, "polled");
        let waker = Waker::from(woken.clone());
        // most turns are whole, and some are nearly over
        let used = if draw(4) == 0 { draw(TURN as usize) } else { 0 };
        for _ in 0..used {
            if let Poll::Ready(unit) = poll_proceed(&mut Context::from_waker(&waker)) {
                unit.made_progress();
            }
        }
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks[at] = None;
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // a task that is dropped may spawn another, which is dropped too
        while !self.tasks.is_empty() {
            self.tasks.clear();
            self.adopt();
        }
        IS_RUNNING.set(false);
        random::begin(None);
        wire::clear();
    }
}
