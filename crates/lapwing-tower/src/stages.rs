//! What a handler says of its request: stages, names and work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::in_handler::InHandler;
use lapwing_ledger::{Basis, Stage, Stamp, TraceContext, Unit, label_text};

/// The request's account, as its handler sees it: an extension of the request. Clones write into the same account.
///
/// Where marks overlap or nest, the one that began last owns the time. [`Stage::Upstream`] and [`Stage::Unattributed`] are what nobody
/// marked, so they cannot be marked. The default one belongs to no request, and everything said of it is dropped.
#[derive(Clone, Debug, Default)]
pub struct RequestStages(Option<Arc<InHandler>>);

impl RequestStages {
    pub(crate) const fn of(exchange: Arc<InHandler>) -> Self {
        Self(Some(exchange))
    }

    /// Enters a stage, which ends when the guard is dropped.
    pub fn enter(&self, stage: Stage) -> StageGuard {
        StageGuard { mark: self.0.clone().map(|exchange| (exchange, stage, Stamp::now())) }
    }

    /// Marks the time from the first poll of `future` to its end as `stage`, with its waits.
    pub fn during<F: Future>(&self, stage: Stage, future: F) -> During<F> {
        During { future, stages: self.clone(), stage, guard: None }
    }

    /// Marks a time that was measured elsewhere, such as a batch of several requests. What lies before the request's start is cut off.
    pub fn mark(&self, stage: Stage, from: Stamp, to: Stamp) {
        if let Some(exchange) = &self.0 {
            exchange.mark(stage, from, to);
        }
    }

    /// Names the model. Its text is cut to 128 bytes; past `max_models` names it is counted under `other`.
    pub fn model(&self, name: &str) {
        self.write(|exchange| {
            exchange.write(|ledger, recording| {
                let known = recording.labels.models.find(&label_text(name));
                ledger.series.model = known.unwrap_or_default();
                match known {
                    Some(_) => ledger.new_names.iter_mut().for_each(|names| names.model = None),
                    None => ledger.name_new_model(&label_text(name)),
                }
            });
        });
    }

    /// Names the route, where the folded path is not what requests should be counted by: `POST /users/{name}`.
    pub fn route(&self, name: &str) {
        self.write(|exchange| {
            exchange.write(|ledger, recording| recording.name_route(ledger, &label_text(name)));
        });
    }

    /// States how much work the request is. The first unit is the primary one, by which cost classes are made.
    pub fn work(&self, unit: Unit, amount: u64) {
        self.write(|exchange| {
            exchange.write(|ledger, _| {
                ledger.work.set(unit, amount, Basis::Reported);
                ledger.work.primary.get_or_insert(unit);
            });
        });
    }

    /// The context to pass to services that the handler calls; `None` once the request has ended.
    #[must_use]
    pub fn trace_context(&self) -> Option<TraceContext> {
        let context = |exchange: &Arc<InHandler>| {
            exchange.write(|ledger, _| TraceContext { trace: ledger.trace, span: ledger.span, flags: TraceContext::SAMPLED })
        };
        self.0.as_ref().and_then(context)
    }

    fn write(&self, write: impl FnOnce(&InHandler)) {
        if let Some(exchange) = &self.0 {
            write(exchange);
        }
    }
}

/// The stage that was entered, until it is dropped.
#[derive(Debug)]
#[must_use = "the stage ends when the guard is dropped"]
pub struct StageGuard {
    mark: Option<(Arc<InHandler>, Stage, Stamp)>,
}

impl Drop for StageGuard {
    fn drop(&mut self) {
        if let Some((exchange, stage, from)) = self.mark.take() {
            exchange.mark(stage, from, Stamp::now());
        }
    }
}

pin_project! {
    /// A future whose time is marked.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct During<F> {
        #[pin]
        future: F,
        stages: RequestStages,
        stage: Stage,
        guard: Option<StageGuard>,
    }
}

impl<F: Future> Future for During<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if this.guard.is_none() {
            *this.guard = Some(this.stages.enter(*this.stage));
        }
        let output = ready!(this.future.poll(cx));
        *this.guard = None;
        Poll::Ready(output)
    }
}
