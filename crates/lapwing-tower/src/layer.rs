//! The layer, its service and the future of its responses: opens the account of a request when the request comes, and guards it until the
//! response's body has it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::account::{AccountGuard, AnswerAccount, GuardedAccount, OpenAccount, OpenedRequest, ResponseTerms};
use crate::recorder::ServerRecorder;
use crate::server_accounts::ServerAccounts;

/// Applies [`LedgerService`]. Put it outside all layers whose time is to be counted.
#[derive(Clone, Debug)]
pub struct LedgerLayer<A = ServerAccounts> {
    accounts: A,
}

impl<A> LedgerLayer<A> {
    /// A layer whose accounts are opened by `accounts`.
    #[must_use]
    pub const fn with_accounts(accounts: A) -> Self {
        Self { accounts }
    }
}

impl LedgerLayer {
    /// A layer whose ledgers go to `recorder`.
    #[must_use]
    pub fn new(recorder: &ServerRecorder) -> Self {
        Self::with_accounts(ServerAccounts::new(recorder))
    }

    /// Says in the response's head, as `Server-Timing`, how long each stage took that ended before it.
    #[must_use]
    pub fn with_server_timing(self) -> Self {
        Self::with_accounts(self.accounts.with_server_timing())
    }

    /// Names the route of a request whose framework knows it, such as axum by `MatchedPath`; `None` leaves the folded path.
    #[must_use]
    pub fn with_route(self, route: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::with_accounts(self.accounts.with_route(Arc::new(route)))
    }
}

impl<S, A: Clone> Layer<S> for LedgerLayer<A> {
    type Service = LedgerService<S, A>;

    fn layer(&self, inner: S) -> LedgerService<S, A> {
        LedgerService { inner, accounts: self.accounts.clone() }
    }
}

/// Keeps the account of each request, and hands the request to `S`: a server's with [`RequestStages`](crate::RequestStages) as an extension.
#[derive(Clone, Debug)]
pub struct LedgerService<S, A = ServerAccounts> {
    inner: S,
    accounts: A,
}

impl<S, B, R, A> Service<Request<B>> for LedgerService<S, A>
where
    A: OpenAccount<B, Account: AnswerAccount<R>>,
    S: Service<A::Request, Response = Response<R>>,
{
    type Response = Response<<A::Account as AnswerAccount<R>>::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, A::Account>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let OpenedRequest { request, account, terms } = self.accounts.open(request);
        let mut guard = AccountGuard::new(account);
        // a service may panic before it returns its future
        let answer = guard.running(|| self.inner.call(request));
        ResponseFuture { answer, guard, terms }
    }
}

pin_project! {
    /// The answer of [`LedgerService`]: hands the end of the account on to the response's body.
    #[derive(Debug)]
    pub struct ResponseFuture<F, A: GuardedAccount> {
        #[pin]
        answer: F,
        guard: AccountGuard<A>,
        terms: ResponseTerms,
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
