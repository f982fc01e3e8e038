//! The future of a response: hands the end of the account on to the response's body.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;

use crate::account::{AccountGuard, AnswerAccount, GuardedAccount, ResponseTerms};

pin_project! {
    /// The answer of [`LedgerService`](crate::LedgerService).
    #[derive(Debug)]
    pub struct ResponseFuture<F, A: GuardedAccount> {
        #[pin]
        answer: F,
        guard: AccountGuard<A>,
        terms: ResponseTerms,
    }
}

impl<F, A: GuardedAccount> ResponseFuture<F, A> {
    pub(crate) const fn new(answer: F, guard: AccountGuard<A>, terms: ResponseTerms) -> Self {
        Self { answer, guard, terms }
    }
}

impl<F, R, E, A> Future for ResponseFuture<F, A>
where
    F: Future<Output = Result<Response<R>, E>>,
    A: AnswerAccount<R>,
{
    type Output = Result<Response<A::Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = this.answer;
        let answered = ready!(this.guard.running(|| answer.poll(cx)));
        let guard = this.guard.take();
        Poll::Ready(match answered {
            Ok(response) => Ok(A::on_answered(guard, response, *this.terms)),
            Err(error) => {
                A::on_failed(guard);
                Err(error)
            }
        })
    }
}
