//! Sends the requests of a warm-up.

use std::cell::Cell;
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::AGE;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;

use super::error::WarmError;
use super::pacing::{WarmPace, WarmPacing};
use super::report::{WarmProgress, WarmReport};
use super::requests::{WarmRequest, WarmRequests};
use super::standing::{CACHE, CacheStanding};
use lapwing_ledger::Stamp;
use lapwing_net::{Client, ClientError, ClientLimits, Target};

/// The largest answer that is read.
const MAX_ANSWER: usize = 1 << 30;
/// How many pairs more than `cache.proof` asks for may be sent to prove a route, and after how many without effect it is given up.
const SPARE_PAIRS: u64 = 8;
const VAIN_PAIRS: u32 = 3;
/// After so many requests in a row without a connection, no further one is sent.
const MOST_REFUSED: u32 = 5;
/// Answers are noted after their client has them: how long that may take, and how often it is looked.
const NOTING: Duration = Duration::from_millis(20);
const NOTING_READS: u32 = 10;
const USER_AGENT: &str = concat!("lapwing-warm/", env!("CARGO_PKG_VERSION"));

/// Where requests go, over HTTP/1.1 and, where that is without TLS, over HTTP/2 if they came so.
#[derive(Clone, Debug)]
pub struct WarmClients {
    http1: Client,
    http2: Option<Client>,
}

impl WarmClients {
    /// To `target`, each request within `timeout`.
    #[must_use]
    pub fn new(target: &Target, timeout: Duration) -> Self {
        let limits = ClientLimits { timeout, max_body: MAX_ANSWER, ..ClientLimits::default() };
        let http2 = (!target.is_tls()).then(|| Client::http2(target.clone(), limits));
        Self { http1: Client::new(target.clone(), limits), http2 }
    }

    /// Returns what came of the request.
    async fn send(&self, request: &WarmRequest) -> Sent {
        let began = Stamp::now();
        let answer = self.exchange(request).await;
        Sent { answer, took_ns: Stamp::now().since(began) }
    }

    async fn exchange(&self, request: &WarmRequest) -> Result<bool, SendFailure> {
        let client = match &self.http2 {
            Some(http2) if request.http2 => http2,
            _ => &self.http1,
        };
        let mut message = Request::new(Full::new(request.body.clone()));
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = request.path.clone().into();
        *message.headers_mut() = request.headers.clone();
        let user_agent = http::HeaderValue::from_static(USER_AGENT);
        message.headers_mut().entry(http::header::USER_AGENT).or_insert(user_agent);
        let (head, body) = client.send(message).await?.into_parts();
        let body = body.collect().await?;
        let code = |fields: &HeaderMap| Some(fields.get("grpc-status")?.to_str().ok()?.to_owned());
        let code = body.trailers().and_then(code).or_else(|| code(&head.headers)).filter(|code| code != "0");
        match (head.status, code) {
            (StatusCode::OK, None) => Ok(head.headers.contains_key(AGE)),
            (StatusCode::OK, Some(code)) => Err(SendFailure { why: format!("grpc-status {code}"), is_refused: false }),
            (status, _) => Err(SendFailure { why: format!("status {}", status.as_u16()), is_refused: false }),
        }
    }
}

/// What came of a request: whether it was answered from the cache, or why it was not answered.
struct Sent {
    answer: Result<bool, SendFailure>,
    took_ns: u64,
}

struct SendFailure {
    why: String,
    /// Whether nobody listens there.
    is_refused: bool,
}

impl From<ClientError> for SendFailure {
    fn from(error: ClientError) -> Self {
        let why = match &error {
            ClientError::Connect { .. } => error.to_string(),
            ClientError::Timeout(_) => "it took longer than --timeout".to_owned(),
            _ => "the connection broke".to_owned(),
        };
        Self { why, is_refused: matches!(error, ClientError::Connect { .. }) }
    }
}

/// Sends `requests`, and says what came of it. `asks` gets a path of the admin address; `progress` is told how far it is.
///
/// # Errors
///
/// If answers are not kept there, or nobody answers.
pub async fn warm<A: AsyncFn(&'static str) -> Result<Bytes, String>>(
    requests: &WarmRequests,
    clients: &WarmClients,
    asks: &A,
    pace: WarmPace,
    progress: impl Fn(WarmProgress),
) -> Result<WarmReport, WarmError> {
    let began = Stamp::now();
    let before = standing(asks).await?;
    let report = WarmReport::new(requests, &before, began);
    let mut warming = Warming { clients, asks, report, pacing: WarmPacing::new(pace, asks), own: Cell::new(0), refused: 0 };
    let all = requests.list.len();
    progress(WarmProgress { done: 0, all });
    if before.proof > 0 {
        for group in groups(&requests.list, before.proof) {
            warming.prove(&group, before.proof).await?;
        }
    }
    warming.fill(&requests.list, |done| progress(WarmProgress { done, all })).await?;
    let after = settled(asks).await?;
    let Warming { mut report, pacing, .. } = warming;
    if pacing.was_blind() {
        report.warnings.push(
            "nobody knows how busy the upstream is (dispatch.mode is off, or its slots are not known): one request at a time was sent, \
             with pauses as long as the answers took"
                .to_owned(),
        );
    }
    report.paused_ns = pacing.paused_ns;
    report.end(&before, after);
    Ok(report)
}

async fn standing<A: AsyncFn(&'static str) -> Result<Bytes, String>>(asks: &A) -> Result<CacheStanding, WarmError> {
    CacheStanding::read(&asks(CACHE).await.map_err(WarmError::Unavailable)?)
}

/// The standing once the last answers are noted.
async fn settled<A: AsyncFn(&'static str) -> Result<Bytes, String>>(asks: &A) -> Result<CacheStanding, WarmError> {
    let mut latest = standing(asks).await?;
    for _ in 0..NOTING_READS {
        sleep(NOTING).await;
        let next = standing(asks).await?;
        let is_settled = next.stored == latest.stored;
        latest = next;
        if is_settled {
            break;
        }
    }
    Ok(latest)
}

/// The first requests of each route, as far as paths tell routes apart: one more than must be proven.
fn groups(list: &[WarmRequest], proof: u64) -> Vec<Vec<&WarmRequest>> {
    let (mut places, mut groups) = (HashMap::<(&Method, &str), usize>::new(), Vec::<Vec<_>>::new());
    for request in list {
        let place = *places.entry((&request.method, request.path.path())).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        if groups[place].len() as u64 <= proof {
            groups[place].push(request);
        }
    }
    groups
}

/// A warm-up under way.
struct Warming<'a, A> {
    clients: &'a WarmClients,
    asks: &'a A,
    report: WarmReport,
    pacing: WarmPacing<'a, A>,
    /// Requests in flight.
    own: Cell<usize>,
    /// How many in a row had no connection.
    refused: u32,
}

impl<A: AsyncFn(&'static str) -> Result<Bytes, String>> Warming<'_, A> {
    /// Sends requests of a route twice, until their answers are kept, or it shows that none will be.
    async fn prove(&mut self, group: &[&WarmRequest], proof: u64) -> Result<(), WarmError> {
        let (mut before, mut vain) = (standing(self.asks).await?, 0);
        for (_, request) in (0..proof + SPARE_PAIRS).zip(group.iter().cycle()) {
            for _ in 0..2 {
                self.pacing.turn(&self.own).await?;
                let Sent { answer, took_ns } = self.clients.send(request).await;
                self.report.proving += 1;
                self.pacing.answered(took_ns);
                self.note_connection(answer.as_ref().err())?;
                if answer.is_ok_and(|is_known| is_known) {
                    return Ok(());
                }
            }
            let after = self.after_pair(&before).await?;
            vain = match after.state_since(&before) {
                Some("unproven") => 0,
                Some(_) => return Ok(()),
                None => vain + 1,
            };
            if vain >= VAIN_PAIRS {
                return Ok(());
            }
            before = after;
        }
        Ok(())
    }

    /// The standing once the pair is compared, or seems not to be.
    async fn after_pair(&self, before: &CacheStanding) -> Result<CacheStanding, WarmError> {
        let mut after = standing(self.asks).await?;
        for _ in 0..NOTING_READS {
            if after.state_since(before).is_some() {
                break;
            }
            sleep(NOTING).await;
            after = standing(self.asks).await?;
        }
        Ok(after)
    }

    /// Sends each request once.
    async fn fill(&mut self, list: &[WarmRequest], progress: impl Fn(usize)) -> Result<(), WarmError> {
        let (clients, own) = (self.clients, Cell::new(0));
        let (mut flying, mut done) = (FuturesUnordered::new(), 0);
        for request in list {
            while flying.len() >= self.pacing.most_in_flight() {
                let Some(sent) = flying.next().await else { break };
                own.set(flying.len());
                done += 1;
                self.note(sent)?;
                progress(done);
            }
            let mut ended = Vec::new();
            {
                let mut turn = pin!(self.pacing.turn(&own));
                loop {
                    tokio::select! {
                        biased;
                        Some(sent) = flying.next(), if !flying.is_empty() => ended.push(sent),
                        gone = &mut turn => break gone?,
                    }
                    own.set(flying.len());
                }
            }
            for sent in ended {
                done += 1;
                self.note(sent)?;
            }
            progress(done);
            flying.push(clients.send(request));
            own.set(flying.len());
        }
        while let Some(sent) = flying.next().await {
            done += 1;
            self.note(sent)?;
            progress(done);
        }
        Ok(())
    }

    fn note(&mut self, sent: Sent) -> Result<(), WarmError> {
        self.pacing.answered(sent.took_ns);
        self.note_connection(sent.answer.as_ref().err())?;
        match sent.answer {
            Ok(is_known) => {
                self.report.answered += 1;
                self.report.known += u64::from(is_known);
            }
            Err(failure) => self.report.fail(failure.why),
        }
        Ok(())
    }

    /// Gives up where nobody listens.
    fn note_connection(&mut self, failure: Option<&SendFailure>) -> Result<(), WarmError> {
        match failure.filter(|failure| failure.is_refused) {
            None => self.refused = 0,
            Some(failure) => {
                self.refused += 1;
                if self.refused >= MOST_REFUSED {
                    return Err(WarmError::Unavailable(failure.why.clone()));
                }
            }
        }
        Ok(())
    }
}
