//! What is done with answers of the upstream: each is copied while it passes, and noted once it has come whole.

use std::sync::Arc;

use http::{HeaderMap, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tower::Service;

use super::asked::{Answer, Counted, StackCache};
use crate::body::capture::{CaptureBudget, CapturedBody, Incomplete};
use crate::body::{ResponseBody, TrackedRequest};
use crate::error::Error;
use crate::in_flight::OnClose;
use lapwing_cache::{AnswerParts, Asking, Looked};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_net::Tasks;

/// Copies an answer while it passes, and notes it once it has come whole. One that others wait for comes to its end without its client.
pub(crate) fn note_answer(
    mut response: Response<ResponseBody>,
    asking: Asking,
    (budget, tasks): (&Arc<CaptureBudget>, &Tasks),
) -> Response<ResponseBody> {
    if !asking.wants(response.status(), response.headers()) {
        return response;
    }
    let copy = response.body_mut().capture(budget);
    if asking.leads() {
        response.body_mut().run_on(tasks);
    }
    let (status, headers) = (response.status(), response.headers().clone());
    tasks.spawn(async move {
        let copy = copy.await;
        note(asking, (status, &headers), copy, Stamp::now());
    });
    response
}

/// Tells what a request counts under once its account closes.
#[derive(Debug)]
struct TellCounted(oneshot::Sender<Counted>);

impl OnClose for TellCounted {
    fn on_close(self: Box<Self>, ledger: &mut Ledger) {
        let counted = Counted { series: ledger.series.into(), units: ledger.work.primary_amount() };
        // the copy may have been given up
        let _ = self.0.send(counted);
    }
}

/// Passes a request on, and counts what a cache would bring, once its client has the answer.
pub(crate) async fn note_passed<S>(mut inner: S, cache: StackCache, mut tracked: TrackedRequest) -> Answer
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Send,
{
    let asked = Stamp::now();
    let in_flight = tracked.in_flight.clone();
    let body = tracked.request.body_mut().capture(&cache.budget);
    let head = head_of(&tracked.request);
    let (tell, counted) = oneshot::channel();
    in_flight.add_on_close(Box::new(TellCounted(tell)));
    let mut response = inner.call(tracked).await?;
    let copy = response.body_mut().capture(&cache.budget);
    let (status, headers) = (response.status(), response.headers().clone());
    let model = cache.cache.awaits_model(&head).then(|| in_flight.account.named_model()).flatten();
    let tasks = in_flight.worker.tasks.clone();
    tasks.spawn(async move {
        let copy = copy.await;
        let ended = Stamp::now();
        let body = match body.await {
            Ok(body) => body,
            // the client left amid its request
            Err(Incomplete::Aborted) => return,
            Err(Incomplete::TooLarge | Incomplete::BudgetSpent) => return cache.cache.count_unread(),
        };
        let Ok(counted) = counted.await else { return };
        let Some(question) = cache.question_of((&head, body.pieces()), model.as_deref(), (counted, asked), &in_flight) else {
            return;
        };
        let Looked::Asked(asking) = cache.cache.look(question, ended) else { return };
        if asking.wants(status, &headers) {
            note(asking, (status, &headers), copy, ended);
        }
    });
    Ok(response)
}

/// Notes an answer of which this is the copy.
fn note(asking: Asking, (status, headers): (StatusCode, &HeaderMap), copy: Result<CapturedBody, Incomplete>, now: Stamp) {
    match copy {
        Ok(copy) => {
            let parts = AnswerParts { status, headers, body: copy.pieces(), trailers: copy.trailers(), is_complete: true };
            asking.answered(parts, now);
        }
        Err(Incomplete::Aborted) => asking.broke_off(),
        Err(Incomplete::TooLarge | Incomplete::BudgetSpent) => asking.give_up(),
    }
}

/// A copy of the head.
fn head_of<B>(request: &Request<B>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    head
}
