//! A request at an upstream that may be sent to a second one, as the layers of a data plane use it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::config::HedgeMode;
use crate::hedges::{Hedge, HedgeWithheld};
use crate::learn::{Departure, DepartureEnd};
use crate::plane::DispatchPlane;
use crate::service::WorkSeries;
use crate::upstreams::{RunId, UpstreamSet};
use crate::waiting::Dispatched;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};

/// A request at an upstream that may be sent to a second one.
#[derive(Clone, Debug)]
pub struct SecondTurn {
    pub(crate) plane: Arc<DispatchPlane>,
    pub(crate) mode: HedgeMode,
    /// Where it runs.
    pub(crate) at: usize,
    pub(crate) id: RunId,
    /// Where it may go.
    pub(crate) to: UpstreamSet,
    pub(crate) series: WorkSeries,
    pub(crate) units: u64,
    pub(crate) arrived: Stamp,
    /// Why it was not sent again when it was last asked, if it takes long.
    pub(crate) withheld: Option<HedgeWithheld>,
}

impl SecondTurn {
    /// Where it runs first.
    #[must_use]
    pub const fn first(&self) -> usize {
        self.at
    }

    /// Waits until it takes long and another upstream is idle; for ever if that is never so.
    pub async fn turn(&mut self, counters: &Counters) -> Dispatched {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        let mut is_over = false;
        poll_fn(|cx| {
            while !is_over {
                if timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_pending()) {
                    return Poll::Pending;
                }
                timer = None;
                match self.ask(cx) {
                    Hedge::Go(at, id) => {
                        let second = Dispatched::new(self.plane.clone(), at, id);
                        self.withheld = None;
                        if self.mode == HedgeMode::On {
                            return Poll::Ready(second);
                        }
                        counters.bump(Counter::HedgesObserved);
                        second.withdraw();
                        is_over = true;
                    }
                    Hedge::NotYet(Some(due)) => {
                        timer = Some(Box::pin(sleep(Duration::from_nanos(due.since(Stamp::now())))));
                    }
                    Hedge::NotYet(None) => break,
                    Hedge::Withheld(why) => {
                        self.withheld = Some(why);
                        break;
                    }
                    Hedge::Never => is_over = true,
                }
            }
            Poll::Pending
        })
        .await
    }

    fn ask(&self, cx: &Context<'_>) -> Hedge {
        self.plane.with(Hedge::Never, |queue, now| queue.hedge(self.id, (self.series, self.to), now, || cx.waker().clone()))
    }

    /// Its first upstream has answered, and no second one was asked: counts why, if it took long.
    pub fn count_withheld(&self, counters: &Counters) {
        if let Some(why) = self.withheld {
            counters.bump(match why {
                HedgeWithheld::Busy => Counter::HedgesWithheldBusy,
                HedgeWithheld::Budget => Counter::HedgesWithheldBudget,
                HedgeWithheld::Utilisation => Counter::HedgesWithheldUtilisation,
            });
        }
    }

    /// The upstream at this place, which had the whole request at `sent`, has ended too late at `ended`: that tells how long requests take.
    /// With `is_stopped`, it was told to.
    pub fn lost(&self, upstream: usize, (sent, ended): (Stamp, Stamp), is_stopped: bool) {
        let end = if is_stopped { DepartureEnd::Stopped } else { DepartureEnd::Lost };
        let &Self { series, units, arrived, .. } = self;
        self.plane.note_lost(Departure { series, upstream, units, arrived, sent, ended, deadline: None, end });
    }
}
