//! The layer's service, which opens the account of a request when it comes, and guards it until the response's body has it; and what it
//! asks of an account: who opens it, who ends it, and what becomes of the response. A server's own
//! ([`ServerAccounts`](crate::ServerAccounts)) knows handlers and their marks; a proxy's knows sockets and an upstream. The service, its
//! future and the guard are the same.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_service::Service;

/// Keeps the account of each request, and hands the request to `S`: a server's with [`RequestStages`](crate::RequestStages) as an extension.
#[derive(Clone, Debug)]
pub struct LedgerService<S, A> {
    inner: S,
    accounts: A,
}

impl<S, A> LedgerService<S, A> {
    /// Keeps the accounts that `accounts` opens of the requests to `inner`.
    pub(crate) const fn new(inner: S, accounts: A) -> Self {
        Self { inner, accounts }
    }
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

/// Opens the account of each request that a [`LedgerService`] is called with.
pub trait OpenAccount<B> {
    /// The account of one request. It is shared by the layer and by the bodies.
    type Account: GuardedAccount;
    /// What the inner service is called with.
    type Request;

    /// Opens the account of `request`. It must not wait.
    fn open(&self, request: Request<B>) -> OpenedRequest<Self::Request, Self::Account>;
}

/// A request whose account is open.
#[derive(Debug)]
pub struct OpenedRequest<Q, A> {
    /// What the inner service is called with.
    pub request: Q,
    /// The request's account.
    pub account: Arc<A>,
    /// What the response's head will be made with.
    pub terms: ResponseTerms,
}

/// What the request says of its response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseTerms {
    /// The request's method is HEAD: its response has no body, whatever its head says.
    pub is_head: bool,
    /// The response is to say what is known of its stages: a server's in its head, a proxy's in a trailer too.
    pub has_server_timing: bool,
}

impl ResponseTerms {
    /// Whether a response with `status` has no body, by its request's method or by its status (RFC 9110, 6.4.1).
    #[must_use]
    #[inline]
    pub fn has_no_body(self, status: StatusCode) -> bool {
        self.is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }
}

/// An account that an [`AccountGuard`] makes sure is closed.
pub trait GuardedAccount: Debug {
    /// The guard was dropped with the request's end in its hand: while the handler's code ran, which then has panicked, or not, and then
    /// the client left. An account that is closed already does nothing.
    fn on_abandoned(self: &Arc<Self>, has_panicked: bool);
}

/// An account that reads its response's head, and hands its end on to the response's body `R`.
pub trait AnswerAccount<R>: GuardedAccount + Sized {
    /// What the response's body becomes.
    type Body;

    /// The inner service answered.
    fn on_answered(guard: AccountGuard<Self>, response: Response<R>, terms: ResponseTerms) -> Response<Self::Body>;

    /// The inner service failed, which leaves no response.
    fn on_failed(guard: AccountGuard<Self>);
}

/// Has a request's end in hand: dropped early, it ends the account.
#[derive(Debug)]
pub struct AccountGuard<A: GuardedAccount> {
    account: Option<Arc<A>>,
    is_running: bool,
}

impl<A: GuardedAccount> AccountGuard<A> {
    /// A guard of `account`.
    #[must_use]
    #[inline]
    pub const fn new(account: Arc<A>) -> Self {
        Self { account: Some(account), is_running: false }
    }

    /// A guard of nothing.
    #[must_use]
    #[inline]
    pub const fn none() -> Self {
        Self { account: None, is_running: false }
    }

    /// The account, until it is released.
    #[must_use]
    #[inline]
    pub const fn get(&self) -> Option<&Arc<A>> {
        self.account.as_ref()
    }

    /// Hands the end on to another guard.
    #[must_use]
    #[inline]
    pub const fn take(&mut self) -> Self {
        Self { account: self.account.take(), is_running: false }
    }

    /// Lets the account go: this guard ends it no more.
    #[must_use]
    #[inline]
    pub const fn release(&mut self) -> Option<Arc<A>> {
        self.account.take()
    }

    /// Runs the handler's code: if that never returns, it panicked.
    #[inline]
    pub fn running<T>(&mut self, run: impl FnOnce() -> T) -> T {
        self.is_running = true;
        let output = run();
        self.is_running = false;
        output
    }

    /// Whether the handler's code runs, or has panicked.
    #[must_use]
    #[inline]
    pub const fn is_running(&self) -> bool {
        self.is_running
    }
}

impl<A: GuardedAccount> Drop for AccountGuard<A> {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.on_abandoned(self.is_running);
        }
    }
}
