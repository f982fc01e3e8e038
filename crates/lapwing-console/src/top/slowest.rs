//! The slowest requests of a row, from `/exchanges?order=slowest`, and where their time went.

use serde::Deserialize;

use crate::admin_client::AdminClient;
use crate::stats::NameFilter;

/// How many of them.
const REQUESTS: &str = "10";

/// One request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SlowRequest {
    pub(crate) trace_id: String,
    pub(crate) started_at: String,
    pub(crate) status: Option<u16>,
    pub(crate) outcome: String,
    /// Whose answer it was given; empty from a Lapwing that does not say.
    pub(crate) served_by: String,
    pub(crate) total_ns: u64,
    pub(crate) stages: Vec<StagePart>,
    pub(crate) spans: Vec<PlacedSpan>,
}

/// The time that a stage owns; over one request these sum to the total.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StagePart {
    pub(crate) stage: String,
    pub(crate) ns: u64,
    pub(crate) source: String,
}

/// What was reported, where it was placed, in nanoseconds from the request's start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlacedSpan {
    pub(crate) name: String,
    pub(crate) stage: String,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) source: String,
}

#[derive(Deserialize)]
struct Answer {
    exchanges: Vec<SlowRequest>,
}

/// The slowest requests with these names, the slowest first. The error names address and reason.
pub(crate) async fn fetch(client: AdminClient, names: NameFilter) -> Result<Vec<SlowRequest>, String> {
    let path = names.query("/exchanges", &[("order", "slowest"), ("limit", REQUESTS)]);
    let answer = client.get(&path, "application/json").await?;
    let mut requests = read(&answer).map_err(|reason| format!("{}: {reason}", client.address()))?;
    requests.iter_mut().for_each(|request| request.spans.sort_by_key(|span| (span.start_ns, u64::MAX - span.end_ns)));
    Ok(requests)
}

fn read(answer: &[u8]) -> Result<Vec<SlowRequest>, String> {
    let answer: Result<Answer, _> = serde_json::from_slice(answer);
    answer.map(|answer| answer.exchanges).map_err(|error| format!("the answer is not that of /exchanges: {error}"))
}
