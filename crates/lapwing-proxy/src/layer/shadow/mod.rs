//! Copies sampled requests and their answers for shadow targets and recordings (`tap`), captures those that a quota may take
//! (`candidate`), and recognises copies in the stack that sends them (`ShadowRole::Copies`).
//!
//! Stage: none. The primary's exchange is never delayed, changed or failed: bodies are referenced while they pass, and a copy
//! that has no room is dropped and counted.

mod candidate;
mod job;
mod parts;
mod recording;
mod tap;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use http::{HeaderName, Response};
use tower::Service;

pub use self::job::{PrimaryAnswer, ShadowJob};
pub use self::parts::{TapBranch, TapParts};
pub use self::recording::{RecordingSwitch, RunningRecording};
pub use self::tap::PairNumbers;
pub use self::tap::ShadowTap;
use crate::body::{ResponseBody, TrackedRequest};
use crate::error::Error;
use lapwing_ledger::PairId;

/// Carries the pair's number from the thread that sends copies to its own stack, which removes it.
pub const PAIR_FIELD: HeaderName = HeaderName::from_static("x-lapwing-pair");

/// What a stack has to do with shadow-serving.
#[derive(Clone, Debug, Default)]
pub enum ShadowRole {
    /// Nothing.
    #[default]
    Off,
    /// It carries clients' requests, of which sampled ones are copied.
    Tap(Arc<ShadowTap>),
    /// It carries the copies.
    Copies,
}

/// Applies [`Shadow`].
#[derive(Clone, Debug)]
pub(crate) struct ShadowLayer(ShadowRole);

/// Returns the layer for `role`.
pub(crate) const fn layer(role: ShadowRole) -> ShadowLayer {
    ShadowLayer(role)
}

impl<S> tower::Layer<S> for ShadowLayer {
    type Service = Shadow<S>;

    fn layer(&self, inner: S) -> Shadow<S> {
        Shadow { inner, role: self.0.clone() }
    }
}

/// Copies requests, or recognises copies.
#[derive(Clone, Debug)]
pub(crate) struct Shadow<S> {
    inner: S,
    role: ShadowRole,
}

type Answer = Result<Response<ResponseBody>, Error>;

impl<S> Service<TrackedRequest> for Shadow<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send + 'static>,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Answer> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> Self::Future {
        match &self.role {
            ShadowRole::Off => {}
            ShadowRole::Copies => recognise(&mut tracked),
            ShadowRole::Tap(tap) => {
                if let Some(waiting) = tap.copy(&mut tracked) {
                    let answer = self.inner.call(tracked);
                    return Either::Right(Box::pin(async move { answer.await.map(|response| waiting.attach(response)) }));
                }
            }
        }
        Either::Left(self.inner.call(tracked))
    }
}

/// Writes the pair's number of a copy into its ledger.
fn recognise(tracked: &mut TrackedRequest) {
    let number = tracked.request.headers_mut().remove(&PAIR_FIELD);
    let number = number.and_then(|value| value.to_str().ok()?.parse().ok()).and_then(PairId::new);
    tracked.in_flight.write_ledger(|ledger| (ledger.is_copy, ledger.pair) = (true, number));
}
