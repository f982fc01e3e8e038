//! How long a request may take by its head: [`Admission`](super::admission) notes it in the ledger, and [`DeadlinePropagation`] passes on what is
//! left of it (`proxy.pass_deadline`).
//!
//! Stage: validation. It ends no request, whatever its time; a field that cannot be read is counted, and passes as it came.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderName, Request};
use tower::Service;

use crate::body::TrackedRequest;
use crate::config::Config;
use crate::in_flight::RequestAccount;
use crate::upstream::{KnowsTraits, UpstreamTraits};
use lapwing_ledger::{Deadline, DeadlineSource, Ledger, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::deadline::{DeadlineForm, GRPC_TIMEOUT, pass_rest};

/// Where a request's head may say how long it may take, the first that counts first.
fn fields(config: &Config) -> impl Iterator<Item = (&HeaderName, DeadlineForm, DeadlineSource)> {
    let own = config.deadline_header.on().map(|name| (name.get(), DeadlineForm::Millis, DeadlineSource::Header));
    [(&GRPC_TIMEOUT, DeadlineForm::Grpc, DeadlineSource::GrpcTimeout)].into_iter().chain(own)
}

/// Whether a field of this name may say how long a request may take.
pub(crate) fn may_state_deadline(config: &Config, name: &HeaderName) -> bool {
    *name == GRPC_TIMEOUT || config.deadline_header.on().is_some_and(|own| own.get() == name)
}

/// Notes how long the request may take, if its head says so.
pub(crate) fn note(headers: &HeaderMap, config: &Config, counters: &Counters, ledger: &mut Ledger) {
    for (name, form, source) in fields(config) {
        match form.read(headers, name) {
            Ok(Some(budget_ns)) => ledger.deadline = ledger.deadline.or(Some(Deadline { budget_ns, source })),
            Ok(None) => {}
            Err(_) => counters.bump(Counter::DeadlinesMalformedHead),
        }
    }
}

/// Applies [`DeadlinePropagation`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadlinePropagationLayer;

impl<S> tower::Layer<S> for DeadlinePropagationLayer {
    type Service = DeadlinePropagation<S>;

    fn layer(&self, inner: S) -> DeadlinePropagation<S> {
        DeadlinePropagation { inner }
    }
}

/// Writes what is left of a request's time into the fields that state it.
#[derive(Clone, Debug)]
pub(crate) struct DeadlinePropagation<S> {
    inner: S,
}

impl<S, B, A> Service<TrackedRequest<B, A>> for DeadlinePropagation<S>
where
    A: AsRef<RequestAccount>,
    S: Service<TrackedRequest<B, A>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest<B, A>) -> S::Future {
        let account = A::as_ref(&tracked.in_flight);
        if account.context.config.pass_deadline.is_on() {
            let began = account.read_ledger(|ledger| ledger.deadline.map(|_| ledger.started)).flatten();
            if let Some(began) = began {
                pass(tracked.request.headers_mut(), &account.context.config, began, Stamp::now());
            }
        }
        self.inner.call(tracked)
    }
}

impl<S: KnowsTraits> KnowsTraits for DeadlinePropagation<S> {
    fn traits<B>(&self, request: &Request<B>) -> &Arc<UpstreamTraits> {
        self.inner.traits(request)
    }
}

/// Writes what is left at `now` of the times of a request that began at `began`.
fn pass(headers: &mut HeaderMap, config: &Config, began: Stamp, now: Stamp) {
    let passed_ns = now.since(began);
    for (name, form, _) in fields(config) {
        if let Ok(Some(budget_ns)) = form.read(headers, name) {
            pass_rest(form, headers, name, budget_ns, passed_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_settings::{Switch, Toggle};

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn trusting() -> Config {
        let own = Switch::On("X-Latency-Budget-Ms".parse().unwrap());
        Config { deadline_header: own, pass_deadline: Toggle::On, ..Config::default() }
    }

    /// What is noted of a head, and how many fields are malformed.
    fn noted(config: &Config, fields: &[(&'static str, &str)]) -> (Option<(u64, &'static str)>, u64) {
        let (counters, mut ledger) = (Counters::default(), Ledger::open(Stamp::now(), 0));
        let headers = headers(fields);
        if headers.keys().any(|name| may_state_deadline(config, name)) {
            note(&headers, config, &counters, &mut ledger);
        }
        let deadline = ledger.deadline.map(|deadline| (deadline.budget_ns / 1_000_000, deadline.source.name()));
        (deadline, counters.get(Counter::DeadlinesMalformedHead))
    }

    #[test]
    fn grpcs_own_field_counts_first_and_others_only_if_they_are_trusted() {
        let (grpc, own) = (("grpc-timeout", "2S"), ("x-latency-budget-ms", "30"));
        assert_eq!(noted(&trusting(), &[own, grpc]), (Some((2_000, "grpc_timeout")), 0));
        assert_eq!(noted(&trusting(), &[own]), (Some((30, "header")), 0));
        assert_eq!(noted(&Config::default(), &[own]), (None, 0));
        assert_eq!(noted(&Config::default(), &[("accept", "2S")]), (None, 0));
    }

    #[test]
    fn a_malformed_field_is_counted_and_the_next_one_counts() {
        let own = ("x-latency-budget-ms", "30");
        assert_eq!(noted(&trusting(), &[own, ("grpc-timeout", "soon")]), (Some((30, "header")), 1));
        assert_eq!(noted(&trusting(), &[("x-latency-budget-ms", "3e1"), ("grpc-timeout", "")]), (None, 2));
    }

    #[test]
    fn what_is_left_is_passed_on_and_what_is_not_trusted_or_not_readable_as_it_came() {
        let began = Stamp::default();
        let passed = |config: &Config, fields: &[(&'static str, &str)]| {
            let mut headers = headers(fields);
            pass(&mut headers, config, began, began.plus(40_000_000));
            let mut left: Vec<_> = headers.values().map(|value| value.to_str().unwrap().to_owned()).collect();
            left.sort_unstable();
            left
        };
        let both = [("grpc-timeout", "100m"), ("x-latency-budget-ms", "30")];
        assert_eq!(passed(&trusting(), &both), ["1", "60000000n"]);
        assert_eq!(passed(&Config::default(), &both), ["30", "60000000n"]);
        assert_eq!(passed(&trusting(), &[("grpc-timeout", "1h"), ("x-latency-budget-ms", "-1")]), ["-1", "1h"]);
    }
}
