//! A tap in a listening proxy: which requests it sees, what it captures of them, and that its budget keeps nothing.

use http::HeaderValue;
use tower::layer::util::Identity;

use super::*;
use crate::body::capture::Incomplete;
use crate::{CapturedExchange, ExchangeTap, OnClose, PassingRequest};
use lapwing_protocol::ShareDraw;

/// Captures every request that it sees, within a budget, and those without the header `x-unanswered` with their answers.
#[derive(Debug)]
struct Capturing {
    budget: Arc<CaptureBudget>,
    captured: Mutex<Vec<(bool, CapturedExchange)>>,
    closed: Arc<Mutex<Vec<u16>>>,
}

#[derive(Debug)]
struct Noted(Arc<Mutex<Vec<u16>>>);

impl OnClose for Noted {
    fn on_close(self: Box<Self>, ledger: &mut Ledger) {
        self.0.lock().unwrap().push(ledger.status);
    }
}

impl ExchangeTap for Capturing {
    fn on_request(&self, request: &mut PassingRequest<'_>, is_drawn: bool) {
        let is_answered = request.headers_mut().remove("x-unanswered").is_none();
        let captured = request.with_ledger(|request, ledger| {
            ledger.is_recorded = true;
            let (captured, answer) = request.capture(ledger.started, &self.budget);
            if is_answered {
                request.await_answer(answer);
            }
            captured
        });
        self.captured.lock().unwrap().push((is_drawn, captured.unwrap()));
        request.add_on_close(Box::new(Noted(self.closed.clone())));
    }
}

fn capturing() -> Arc<Capturing> {
    Arc::new(Capturing { budget: budget(4 << 20), captured: Mutex::default(), closed: Arc::default() })
}

#[tokio::test]
async fn a_tap_captures_what_passes_and_nothing_that_it_does_not_see() {
    let tasks = Tasks::default();
    let (upstream, asked) = server("answer ", &tasks).await;
    let (tap, is_on) = (capturing(), Arc::<std::sync::atomic::AtomicBool>::default());
    let name = http::HeaderName::from_static("x-capture");
    let share = Some(ShareDraw::new(0.0, Some(name.clone())));
    let stack_tap = StackTap { tap: tap.clone(), share, sees_all: false, sees_all_now: is_on.clone() };
    let proxy = Proxy::start_with(Some(stack_tap), upstream, Identity::new(), &tasks);
    let ask = async |header: Option<&http::HeaderName>| {
        let mut request = Request::post("/x").body(Full::new(Bytes::from_static(b"body"))).unwrap();
        header.map(|name| request.headers_mut().insert(name, HeaderValue::from_static("1")));
        assert_eq!(proxy.client.fetch(request).await.unwrap().into_body(), "answer body");
    };
    ask(None).await;
    ask(Some(&name)).await;
    is_on.store(true, std::sync::atomic::Ordering::Relaxed);
    ask(None).await;
    ask(Some(&http::HeaderName::from_static("x-unanswered"))).await;
    let closed = proxy.closed(4).await;
    assert_eq!(closed.iter().filter(|ledger| ledger.is_recorded).count(), 3, "the first was not seen");
    assert_eq!(*tap.closed.lock().unwrap(), [200; 3]);
    assert_eq!(asked.lock().unwrap().len(), 4);
    let captured = std::mem::take(&mut *tap.captured.lock().unwrap());
    assert_eq!(captured.iter().map(|(is_drawn, _)| *is_drawn).collect::<Vec<_>>(), [true, false, false]);
    for (at, (_, exchange)) in captured.into_iter().enumerate() {
        assert_eq!(exchange.path, "/x");
        assert_eq!(exchange.body.await.unwrap().pieces().concat(), b"body");
        match exchange.answer.await {
            Ok(answer) => assert_eq!(answer.body.await.unwrap().pieces().concat(), b"answer body"),
            Err(_) => assert_eq!(at, 2, "whose answer is not awaited"),
        }
    }
    assert_eq!(tap.budget.used(), 0);
}

#[tokio::test]
async fn a_body_beyond_the_budget_is_not_captured_and_passes() {
    let tasks = Tasks::default();
    let (upstream, _) = server("", &tasks).await;
    let tap = Arc::new(Capturing { budget: budget(1_000), captured: Mutex::default(), closed: Arc::default() });
    let stack_tap = StackTap { tap: tap.clone(), share: None, sees_all: true, sees_all_now: Arc::default() };
    let proxy = Proxy::start_with(Some(stack_tap), upstream, Identity::new(), &tasks);
    let large = Bytes::from(vec![b'x'; 100_000]);
    assert_eq!(proxy.ask("/x", large.clone()).await, large);
    let (is_drawn, exchange) = tap.captured.lock().unwrap().pop().unwrap();
    assert_eq!((is_drawn, exchange.body.await.unwrap_err()), (false, Incomplete::TooLarge));
    assert_eq!((proxy.closed(1).await[0].outcome, tap.budget.used()), (Outcome::Ok, 0));
}
