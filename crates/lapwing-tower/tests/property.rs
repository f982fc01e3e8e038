//! Whatever a response does, it is recorded once, its stages sum to its total, and its bytes are those of the handler.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use lapwing_tower::{Exchange, LedgerLayer, Outcome, RequestStages, ServerRecorder, Stage};
use proptest::prelude::*;
use tokio::time::{Sleep, sleep};
use tower::{Layer, ServiceExt, service_fn};

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Plainly,
    Trailers(u32),
    Fails,
    Panics,
}

#[derive(Clone, Debug)]
struct Case {
    /// The stages that the handler marks, each with its length, and the pause before it.
    marks: Vec<(usize, u64, u64)>,
    /// The handler fails, or panics, instead of answering.
    fails: Option<bool>,
    /// The client leaves after so many milliseconds of the handler.
    leaves: Option<u64>,
    /// The frames: how long each takes, and its length.
    frames: Vec<(u64, usize)>,
    end: End,
    /// Whether the body says its length.
    is_known: bool,
    /// The client drops the body after so many frames, each of which it takes so long to ask for.
    dropped: Option<usize>,
    pause: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let end = prop_oneof![3 => Just(End::Plainly), 1 => (0..17_u32).prop_map(End::Trailers), 1 => Just(End::Fails), 1 => Just(End::Panics)];
    let rarely = |n: u64| prop_oneof![4 => Just(None), 1 => (0..n).prop_map(Some)];
    let marks = prop::collection::vec((0..Stage::COUNT, 0..20_u64, 0..20_u64), 0..9);
    let frames = prop::collection::vec((0..9_u64, 0..40_usize), 0..6);
    (marks, rarely(2), rarely(90), frames, end, any::<bool>(), rarely(6), 0..4_u64).prop_map(
        |(marks, fails, leaves, frames, end, is_known, dropped, pause)| Case {
            marks,
            fails: fails.map(|n| n == 1),
            leaves,
            frames,
            end,
            is_known: is_known && end == End::Plainly,
            dropped: dropped.map(|n| n as usize),
            pause,
        },
    )
}

struct Scripted {
    frames: VecDeque<(u64, usize)>,
    end: Option<End>,
    is_known: bool,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let Some((ms, length)) = self.frames.front().copied() else {
            return Poll::Ready(match self.end.take() {
                Some(End::Trailers(code)) => {
                    let fields = HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.to_string().parse().unwrap())]);
                    Some(Ok(Frame::trailers(fields)))
                }
                Some(End::Fails) => Some(Err("broken")),
                Some(End::Panics) => panic!("the body panics on purpose"),
                Some(End::Plainly) | None => None,
            });
        };
        ready!(self.wait.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(ms)))).as_mut().poll(cx));
        (self.wait, _) = (None, self.frames.pop_front());
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![length as u8; length])))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_known && self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.frames.iter().map(|(_, length)| *length as u64).sum();
        if self.is_known { SizeHint::with_exact(length) } else { SizeHint::default() }
    }
}

/// Panics that are meant are not printed, two hundred times with their backtraces.
fn silence_meant_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload_as_str().is_some_and(|text| text.ends_with("on purpose")) {
                print(panic);
            }
        }));
    });
}

/// What the client took, whether it saw the end, and the exchange.
struct Seen {
    exchange: Arc<Exchange>,
    hooked: usize,
    forward_ns: u64,
    taken: Vec<u8>,
    is_complete: bool,
    status: Option<u16>,
}

async fn run(case: Case) -> Seen {
    let _followed = lapwing_ledger::clock::runtime::follow();
    let hooked = Arc::new(AtomicUsize::new(0));
    let counted = hooked.clone();
    let recorder = ServerRecorder::builder("s").on_exchange(move |_, _| _ = counted.fetch_add(1, Relaxed)).start().unwrap();
    let script = case.clone();
    let handler = service_fn(move |request: Request<_>| {
        let case = script.clone();
        async move {
            let stages = request.extensions().get::<RequestStages>().cloned().unwrap();
            for (stage, pause, ms) in case.marks {
                sleep(Duration::from_millis(pause)).await;
                stages.during(Stage::ALL[stage], sleep(Duration::from_millis(ms))).await;
            }
            match case.fails {
                Some(true) => panic!("the handler panics on purpose"),
                Some(false) => return Err("no answer"),
                None => {}
            }
            let body = Scripted { frames: case.frames.into(), end: Some(case.end), is_known: case.is_known, wait: None };
            let mut response = Response::new(body);
            if matches!(case.end, End::Trailers(_)) {
                response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            }
            Ok(response)
        }
    });
    let service = LedgerLayer::new(&recorder).with_server_timing().layer(handler);
    let client = async move {
        let request = Request::post("/x").body(Full::<Bytes>::default()).unwrap();
        let answer = service.oneshot(request);
        let answer = match case.leaves {
            Some(ms) => tokio::time::timeout(Duration::from_millis(ms), answer).await.map_err(|_| "left"),
            None => Ok(answer.await),
        };
        let Ok(Ok(response)) = answer else { return (Vec::new(), false) };
        let mut body = pin!(response.into_body());
        let (mut taken, mut n) = (Vec::new(), 0);
        loop {
            if body.is_end_stream() {
                return (taken, true);
            }
            if case.dropped == Some(n) {
                // who has as many bytes as were announced need not ask for more
                return (taken, body.size_hint().exact() == Some(0));
            }
            n += 1;
            sleep(Duration::from_millis(case.pause)).await;
            match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                None => return (taken, true),
                Some(Err(_)) => return (taken, false),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => taken.extend_from_slice(&data),
                    Err(_) => return (taken, true),
                },
            }
        }
    };
    let local = tokio::task::LocalSet::new();
    let (taken, is_complete) = local.run_until(async move { tokio::task::spawn_local(client).await }).await.unwrap_or_default();
    recorder.flush();
    let exchanges = recorder.recent(9);
    assert_eq!((exchanges.len(), recorder.late(), recorder.dropped()), (1, 0, 0));
    let exchange = exchanges[0].clone();
    let forward = exchange.ledger.spans.iter().filter(|span| span.stage == Stage::Forward);
    let forward_ns = forward.map(|span| span.end_ns - span.start_ns).sum();
    let status = Some(exchange.ledger.status).filter(|status| *status != 0);
    Seen { exchange, hooked: hooked.load(Relaxed), forward_ns, taken, is_complete, status }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_response_is_recorded_once_and_its_stages_sum_to_its_total(case in case()) {
        silence_meant_panics();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let Seen { exchange, hooked, forward_ns, taken, is_complete, status } = runtime.block_on(run(case.clone()));
        let (ledger, account) = (&exchange.ledger, &exchange.account);
        prop_assert_eq!(hooked, 1);
        prop_assert_eq!(account.total_ns(), ledger.total_ns);
        prop_assert_eq!(account.stage_ns(Stage::Forward), forward_ns, "marks one after the other are exact");
        let panicked = status.is_none() && case.fails == Some(true) && case.leaves.is_none()
            || status.is_some() && case.end == End::Panics;
        if !panicked {
            let all: Vec<u8> = case.frames.iter().flat_map(|(_, length)| vec![*length as u8; *length]).collect();
            prop_assert!(all.starts_with(&taken));
            prop_assert!(!is_complete || all == taken);
            prop_assert_eq!(ledger.response_bytes, taken.len() as u64);
        }
        match (ledger.outcome, status) {
            (Outcome::Cancelled, _) => prop_assert!(!is_complete),
            (Outcome::Broken, None) => prop_assert!(case.fails.is_some()),
            (Outcome::Broken, Some(_)) => prop_assert!(matches!(case.end, End::Fails | End::Panics)),
            (outcome, Some(200)) => {
                let wanted = if let End::Trailers(code) = case.end { Outcome::of_grpc(code) } else { Outcome::Ok };
                prop_assert!(is_complete && outcome == wanted, "{:?}", outcome);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
