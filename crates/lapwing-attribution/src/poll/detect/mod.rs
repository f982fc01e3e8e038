//! Where statistics are: the one address that a recognised server is known to own, or what the configuration names; and which
//! server gave an answer.

use serde::Deserialize;

use super::reading::family;
use super::text::MetricLine;
use super::triton;
use lapwing_ledger::Server;
use lapwing_net::Target;
use lapwing_protocol::servers::table;

/// Where a server of the Open Inference Protocol describes itself.
pub(crate) const METADATA: &str = "/v2";
/// Where most servers serve their metrics.
const METRICS: &str = "/metrics";
const TENSORRT_LLM: &str = "/prometheus/metrics";
/// Where a server that the configuration names without a path is asked, in order.
const USUAL: [&str; 4] = [METADATA, METRICS, "/monitoring/prometheus/metrics", TENSORRT_LLM];

/// Where a server may be asked who it is, by whom its operator sent: [`described_server`] reads the answers.
pub const DESCRIPTION_PATHS: [&str; 2] = [METADATA, METRICS];

/// The server that answers with this body to one of [`DESCRIPTION_PATHS`].
#[must_use]
pub fn described_server(path: &str, body: &[u8]) -> Option<Server> {
    match path {
        METADATA => by_metadata(body).map(|(server, _)| server),
        METRICS => by_metrics(&String::from_utf8_lossy(body)),
        _ => None,
    }
}

/// An address that may serve statistics.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) at: Target,
    pub(crate) path: String,
}

/// The path at which this server itself serves its statistics, on the port on which it serves requests; `None` if it serves none
/// there.
pub(crate) const fn own_path(server: Server) -> Option<&'static str> {
    match server {
        Server::Triton => Some(triton::STATS),
        Server::Vllm | Server::Sglang | Server::Tei | Server::Tgi | Server::LlamaCpp | Server::BentoMl => Some(METRICS),
        Server::TensorRtLlm => Some(TENSORRT_LLM),
        // nothing in their traffic shows who they are, or their statistics are on another port, or they have none
        Server::TfServing
        | Server::TorchServe
        | Server::MlServer
        | Server::KServe
        | Server::RayServe
        | Server::Ollama
        | Server::FastApi => None,
    }
}

/// The addresses to ask where the configuration names one, in order.
pub(crate) fn configured(authority: &str, path: &str) -> Vec<Candidate> {
    let at = Target::Tcp(authority.to_owned());
    let candidate = |path: &str| Candidate { at: at.clone(), path: path.to_owned() };
    if path.is_empty() { USUAL.map(candidate).to_vec() } else { vec![candidate(path)] }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Metadata {
    name: String,
    extensions: Vec<String>,
}

/// The server that answers like this to [`METADATA`], and whether it serves its own statistics.
pub(crate) fn by_metadata(body: &[u8]) -> Option<(Server, bool)> {
    let metadata: Metadata = serde_json::from_slice(body).ok()?;
    let has_statistics = metadata.extensions.iter().any(|extension| extension == "statistics");
    let server = match metadata.name.as_str() {
        "triton" => Server::Triton,
        "mlserver" => Server::MlServer,
        _ if has_statistics => Server::Triton, // its name can be set by --id
        _ => return None,
    };
    Some((server, has_statistics))
}

/// The server whose metrics these are: the one with the most families in the text.
pub(crate) fn by_metrics(text: &str) -> Option<Server> {
    let mut named: Vec<&str> = text
        .lines()
        .filter_map(|line| match MetricLine::of(line) {
            MetricLine::Sample(sample) => Some(sample.name),
            MetricLine::Family(family) => Some(family),
            MetricLine::Nothing | MetricLine::Malformed => None,
        })
        .collect();
    named.sort_unstable();
    named.dedup();
    let has = |name: &str| {
        let stands = |suffix: &str| named.binary_search_by(|found| found.bytes().cmp(name.bytes().chain(suffix.bytes()))).is_ok();
        stands("") || stands("_count")
    };
    let count = |server: &Server| table::metrics(*server).filter(|(metric, _)| has(family(metric).0)).count();
    let (count, server) = Server::ALL.iter().map(|server| (count(server), *server)).max_by_key(|(count, _)| *count)?;
    (count > 0).then_some(server)
}

#[cfg(test)]
mod tests;
