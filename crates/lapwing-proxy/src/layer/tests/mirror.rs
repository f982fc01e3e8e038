//! A layer that mirrors sampled requests to a second server, after they have passed, and compares the two responses' bodies.

use super::*;

#[derive(Clone)]
pub(crate) struct MirrorLayer {
    pub(crate) second: Client<ReplayBody>,
    pub(crate) budget: Arc<CaptureBudget>,
    pub(crate) is_sampled: fn(&Request<RequestBody>) -> bool,
    pub(crate) compared: mpsc::UnboundedSender<Comparison>,
    pub(crate) tasks: Tasks,
}

impl<S> Layer<S> for MirrorLayer {
    type Service = Mirror<S>;

    fn layer(&self, inner: S) -> Mirror<S> {
        Mirror(inner, self.clone())
    }
}

/// The service, and what it mirrors with.
pub(crate) struct Mirror<S>(S, MirrorLayer);

impl<S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send + 'static>> Service<TrackedRequest>
    for Mirror<S>
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<ResponseBody>, Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> Self::Future {
        if !(self.1.is_sampled)(&tracked.request) {
            return Either::Left(self.0.call(tracked));
        }
        let mirror = self.1.clone();
        let mut copy = Request::builder().method(tracked.request.method()).uri(tracked.request.uri());
        copy.headers_mut().unwrap().clone_from(tracked.request.headers());
        let request = tracked.request.body_mut().capture(&mirror.budget);
        let answer = self.0.call(tracked);
        Either::Right(Box::pin(async move {
            let mut response = answer.await?;
            let original = response.body_mut().capture(&mirror.budget);
            mirror.tasks.clone().spawn(async move {
                let compare = async {
                    let copy = copy.body(Arc::new(request.await?).replay())?;
                    let second = capture_whole(mirror.second.send(copy).await?.into_body(), &mirror.budget).await?;
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(original.await?.has_same_bytes(&second))
                };
                let _ = mirror.compared.send(compare.await.map_err(|error| error.to_string()));
            });
            Ok(response)
        }))
    }
}
