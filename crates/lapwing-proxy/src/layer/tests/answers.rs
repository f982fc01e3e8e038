//! A layer that answers requests from a map of their bodies. Requests that the map does not know go on unchanged.

use super::*;
use crate::body::hold;

#[derive(Clone)]
pub(crate) struct AnswersLayer(pub(crate) Arc<HashMap<Bytes, Bytes>>);

impl<S> Layer<S> for AnswersLayer {
    type Service = Answers<S>;

    fn layer(&self, inner: S) -> Answers<S> {
        Answers { inner, answers: self.0.clone() }
    }
}

pub(crate) struct Answers<S> {
    inner: S,
    answers: Arc<HashMap<Bytes, Bytes>>,
}

impl<S> Service<TrackedRequest> for Answers<S>
where
    S: Service<TrackedRequest, Response = Response<ResponseBody>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, tracked: TrackedRequest) -> Self::Future {
        let (mut inner, answers) = (self.inner.clone(), self.answers.clone());
        Box::pin(async move {
            let held = hold(tracked).await?;
            let answer = held.body().and_then(|body| answers.get(&body).cloned());
            let tracked = held.into_request();
            match answer {
                Some(answer) => {
                    let response = Response::new(answer);
                    tracked.in_flight.account.record_response_head(response.status(), response.headers());
                    Ok(response.map(ResponseBody::own))
                }
                None => inner.call(tracked).await,
            }
        })
    }
}
