//! What the layer costs: at most twelve allocations a request, counted by the allocator. The time is printed, and nothing is asserted of it:
//! `cargo test --release -p lapwing-tower --test cost -- --nocapture`.

#![allow(unsafe_code, reason = "an allocator needs unsafe code")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use lapwing_tower::{LedgerLayer, RequestStages, ServerRecorder, Stage, Unit};
use tower::{Layer, Service, service_fn};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator; counts this thread's allocations.
struct Counting;

// SAFETY: the system's allocator does all the work; counting only changes a thread-local number.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's guarantees are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are those that the system's allocator needs.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("nothing waits here"),
    }
}

/// Batches of requests that are timed each, and how many requests each has: a batch is over before the machine does something else.
const BATCHES: usize = 101;
const REQUESTS: usize = 500;

/// Allocations of a request of `service`, the mean of many, and its nanoseconds in each batch, in ascending order.
fn cost<S, B>(service: &mut S) -> (usize, [u64; BATCHES])
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = Infallible>,
{
    let mut one = || {
        let request = Request::post("/v2/models/digits/infer").body(Full::default()).unwrap();
        let response = ready(service.call(request)).unwrap();
        let mut body = pin!(response.into_body());
        while !body.is_end_stream() {
            let frame = ready(std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)));
            assert!(frame.unwrap().unwrap().is_data());
        }
    };
    (0..100).for_each(|_| one());
    std::thread::sleep(std::time::Duration::from_millis(100)); // the names are learnt
    let before = COUNT.get();
    let mut ns = [0; BATCHES].map(|_: u64| {
        let started = lapwing_ledger::Stamp::now();
        (0..REQUESTS).for_each(|_| one());
        started.elapsed() / REQUESTS as u64
    });
    let allocations = (COUNT.get() - before) / (BATCHES * REQUESTS);
    ns.sort_unstable();
    (allocations, ns)
}

#[test]
fn a_request_with_three_stages_takes_twelve_allocations_at_most() {
    let recorder = ServerRecorder::start("digits").unwrap();
    let answer = || Response::new(Full::new(Bytes::from_static(b"[7]")));
    let mut bare = service_fn(async |_: Request<Full<Bytes>>| Ok::<_, Infallible>(answer()));
    let mut kept = LedgerLayer::new(&recorder).layer(service_fn(async |request: Request<_>| {
        let stages = request.extensions().get::<RequestStages>().cloned().unwrap_or_default();
        stages.model("digits");
        stages.work(Unit::Row, 32);
        for stage in [Stage::Preprocessing, Stage::Forward, Stage::Postprocessing] {
            drop(stages.enter(stage));
        }
        Ok::<_, Infallible>(answer())
    }));
    let (bare, kept) = (cost(&mut bare), cost(&mut kept));
    let allocations = kept.0 - bare.0;
    let ns = |place: usize| kept.1[place].saturating_sub(bare.1[place]);
    println!(
        "the layer takes {allocations} allocations and {} ns a request with three stages: the median of {BATCHES} batches with it less that \
         without; the first decile, which what else runs hardly disturbs: {} ns",
        ns(BATCHES / 2),
        ns(BATCHES / 10)
    );
    assert!((1..=12).contains(&allocations), "{allocations}");
    assert_eq!(recorder.late(), 0);
}
