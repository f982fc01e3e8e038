//! A request that may be sent to a second upstream while the first takes long ([`SecondTurn`] says when): who answers first answers.
//!
//! Each upstream's part of it is a leg with an account of its own; the request's account adopts that of the leg whose answer it is. A failure
//! is no answer while the other leg runs. The leg that comes too late is reset over HTTP/2; over HTTP/1.1, where that would close the
//! connection and tell the server nothing, its answer is read to its end and thrown away, and its place is taken until then.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::{Request, Response, StatusCode, Version};
use tokio::time::timeout;

use super::carry::{Answered, carry};
use super::client_upstreams::{ClientUpstream, ClientUpstreams, Elsewhere};
use crate::body::{RequestBody, ResponseBody, SecondRequest, TrackedRequest};
use crate::error::Error;
use crate::health::Route;
use crate::in_flight::{InFlight, RequestAccount};
use crate::placement::Placed;
use lapwing_dispatch::{Dispatched, SecondTurn};
use lapwing_ledger::{Annotation, ObservedEvent, Outcome, Stage, Stamp};
use lapwing_metrics::Counter;

/// How many bytes of an answer that comes too late are read, and for how long at most.
const LATE_BYTES: usize = 1024 * 1024;
const LATE_TIME: Duration = Duration::from_secs(30);

/// The code of gRPC of a call that is turned away.
const RESOURCE_EXHAUSTED: &str = "8";

type Answer = Result<Response<ResponseBody>, Error>;

/// One upstream's part of a request.
struct Leg {
    in_flight: Arc<InFlight>,
    answer: Answered,
    /// The upstream, by its place.
    at: usize,
    began: Stamp,
    /// Whether it goes over HTTP/2, as far as that is known.
    is_stream: bool,
}

impl Leg {
    /// Sends the request to an upstream, whose `place` it takes; `None` if its client has gone.
    fn begin(
        (upstream, at): (&ClientUpstream, usize),
        client: &Arc<InFlight>,
        place: Option<Dispatched>,
        request: Box<Request<RequestBody>>,
    ) -> Option<Self> {
        let in_flight = client.leg()?;
        if let Some(place) = place {
            in_flight.account.take_place(place);
        }
        let context = &upstream.context;
        let is_stream = context.health.spoken.route(context.protocol(&in_flight.account), version_of(client)) == Route::Http2;
        // where it takes no connection, the request goes elsewhere, and not a leg of it
        let answer = carry(upstream, None, TrackedRequest { request, in_flight: in_flight.clone() });
        Some(Self { answer, in_flight, at, began: Stamp::now(), is_stream })
    }

    fn account(&self) -> &RequestAccount {
        &self.in_flight.account
    }

    /// Whether it has answered, if only that the request is wrong: it has neither failed nor turned it away.
    fn has_answered(&self, answer: &Answer) -> bool {
        let Ok(response) = answer else { return false };
        let outcome = self.account().read_ledger(|ledger| ledger.outcome);
        let is_turned_away = response.status() == StatusCode::TOO_MANY_REQUESTS
            || response.headers().get("grpc-status").is_some_and(|code| code == RESOURCE_EXHAUSTED);
        matches!(outcome, Some(Outcome::Ok | Outcome::ClientError | Outcome::BodyError)) && !is_turned_away
    }

    /// It has failed: its upstream may be sent something else.
    fn fail(&self, answer: &Answer) {
        if let Err(error) = answer {
            self.account().write_ledger(|ledger| ledger.outcome = error.response().outcome);
        }
        self.in_flight.silence();
        self.account().end_window(Stamp::now());
    }

    /// It comes too late.
    fn lose(self, turn: SecondTurn) {
        let Self { in_flight, answer, at, began, is_stream } = self;
        in_flight.silence();
        if is_stream {
            drop(answer);
            turn.lost(at, (began, Stamp::now()), true);
            return;
        }
        let tasks = in_flight.worker.tasks.clone();
        tasks.spawn(async move {
            let account = &in_flight.account;
            let outcome = match timeout(LATE_TIME, read_to_end(answer)).await {
                Ok(Ok(is_whole)) => {
                    let sent = account.read_ledger(|ledger| Some(ledger.started.plus(ledger.window?.start_ns))).flatten();
                    turn.lost(at, (sent.unwrap_or(began), Stamp::now()), !is_whole);
                    None
                }
                Ok(Err(error)) => Some(error.response().outcome),
                Err(_) => Some(Outcome::TimedOut),
            };
            if let Some(outcome) = outcome {
                account.write_ledger(|ledger| ledger.outcome = outcome);
            }
            account.end_window(Stamp::now());
        });
    }
}

/// That of the client's connection.
fn version_of(client: &InFlight) -> Version {
    if client.is_multiplexed { Version::HTTP_2 } else { Version::HTTP_11 }
}

/// Returns whether all of it came.
async fn read_to_end(answer: impl Future<Output = Answer>) -> Result<bool, Error> {
    Ok(answer.await?.into_body().unwanted().discard(LATE_BYTES).await)
}

/// Carries a request to the upstream that it was placed at and, if `turn` says so, to a second one.
pub(crate) async fn hedged(upstreams: ClientUpstreams, turn: SecondTurn, mut tracked: TrackedRequest) -> Answer {
    let placed = ClientUpstreams::placed(&tracked.request);
    let first = (upstreams.of(&tracked.request).clone(), turn.first());
    let elsewhere = upstreams.elsewhere(&mut tracked.request);
    hedged_at(first, elsewhere, (&upstreams, placed), turn, tracked).await
}

/// The same with `upstream` first, at that place or, if it takes no connection, with one from `elsewhere`.
async fn hedged_at(
    (upstream, at): (ClientUpstream, usize),
    elsewhere: Option<Box<Elsewhere>>,
    (upstreams, placed): (&ClientUpstreams, Option<Placed>),
    mut turn: SecondTurn,
    tracked: TrackedRequest,
) -> Answer {
    let client = tracked.in_flight.clone();
    let counters = &client.account.context.counters;
    let Some(second) = SecondRequest::of(&tracked.request) else { return carry(&upstream, elsewhere, tracked).await };
    client.account.stamps.dispatch();
    let place = client.account.give_place();
    let Some(mut first) = Leg::begin((&upstream, at), &client, place, tracked.request) else { return Err(gone()) };
    let place = match select(&mut first.answer, pin!(turn.turn(counters))).await {
        Either::Left((answer, _)) => Err(answer),
        Either::Right((place, _)) => Ok(place),
    };
    let place = match place {
        Ok(place) => place,
        Err(answer) => {
            let error = match adopt(&client, &first, answer) {
                Ok(response) => {
                    turn.count_withheld(counters);
                    return Ok(response);
                }
                Err(error) => error,
            };
            let other = elsewhere.and_then(|elsewhere| elsewhere.after(&error, &client.account, version_of(&client), |_| true));
            let Some((other, _)) = other else { return Err(error) };
            let at = upstreams.place_of(&other).unwrap_or(at);
            let tracked = TrackedRequest { request: Box::new(second.into_request()), in_flight: client };
            return Box::pin(hedged_at((other, at), None, (upstreams, placed), turn, tracked)).await;
        }
    };
    let other = upstreams.at(place.at()).filter(|_| upstreams.may_repeat(second.head(), &second.pieces()));
    let Some(other) = other else {
        counters.bump(Counter::HedgesWithheldUnrepeatable);
        place.withdraw();
        let answer = (&mut first.answer).await;
        return adopt(&client, &first, answer);
    };
    let at = place.at();
    let second = Leg::begin((other, at), &client, Some(place), Box::new(second.into_request()));
    let Some(second) = second else { return Err(gone()) };
    race(&client, (first, second), turn, |first| upstreams.answered_by(at, placed, first, &client.account)).await
}

/// Waits for the first answer of two legs; `answered_by_second` notes that the second's came before that of the first, with its account.
async fn race(
    client: &Arc<InFlight>,
    (mut first, mut second): (Leg, Leg),
    turn: SecondTurn,
    answered_by_second: impl Fn(&RequestAccount),
) -> Answer {
    let (answer, is_second) = match select(&mut first.answer, &mut second.answer).await {
        Either::Left((answer, _)) => (answer, false),
        Either::Right((answer, _)) => (answer, true),
    };
    // who fails waits for the other; if both do, the first's failure is the answer
    let (answer, is_second, is_over) = match (answer, is_second) {
        (answer, false) if first.has_answered(&answer) => (answer, false, false),
        (answer, true) if second.has_answered(&answer) => (answer, true, false),
        (failed, false) => {
            first.fail(&failed);
            let other = (&mut second.answer).await;
            if second.has_answered(&other) {
                (other, true, true)
            } else {
                second.fail(&other);
                (failed, false, true)
            }
        }
        (failed, true) => {
            second.fail(&failed);
            drop(failed);
            ((&mut first.answer).await, false, true)
        }
    };
    client.account.context.counters.bump(match is_second {
        true => Counter::HedgesWon,
        false if first.has_answered(&answer) => Counter::HedgesLost,
        false => Counter::HedgesFailed,
    });
    let began = first.began;
    let (won, lost) = if is_second { (second, first) } else { (first, second) };
    won.account().write_ledger(|ledger| {
        ledger.circumstances.annotations.add(Annotation::Hedged);
        // both servers' spans have the same parent, and nobody could tell them apart
        ledger.traced = false;
        if is_second {
            ledger.circumstances.annotations.add(Annotation::HedgeWon);
            ledger.observe(Stage::Unattributed, ObservedEvent::Attempt, began, won.began);
        }
    });
    let answer = adopt(client, &won, answer);
    if is_second {
        answered_by_second(lost.account());
    }
    if !is_over {
        lost.lose(turn);
    }
    answer
}

/// The answer of this leg is the request's.
fn adopt(client: &Arc<InFlight>, leg: &Leg, answer: Answer) -> Answer {
    if !client.account.adopt(leg.account()) {
        return Err(gone());
    }
    if let Ok(response) = &answer {
        client.account.record_response_head(response.status(), response.headers());
    }
    answer
}

/// Nobody waits for the answer any more.
fn gone() -> Error {
    Error::RequestCut("its account is closed".to_owned())
}
