//! Finds out which server the upstream is and where its statistics are, by asking one address after the other: the upstream
//! itself, and the ports where known servers usually serve their metrics.

use serde::Deserialize;

use super::reading::family;
use super::text::MetricLine;
use crate::ledger::Server;
use crate::protocol::servers::table;
use crate::settings::{Poll, Upstream};

/// Ports of servers that serve their statistics on another port: the port to ask instead, and the path.
const SIBLINGS: [(u16, u16, &str); 4] = [
    (8001, 8000, METADATA),   // Triton's gRPC
    (8080, 8082, "/metrics"), // TorchServe and MLServer
    (8081, 8082, "/metrics"), // MLServer's gRPC
    (8500, 8501, TF_SERVING), // TensorFlow Serving's gRPC
];
/// Where a server of the Open Inference Protocol describes itself.
pub(super) const METADATA: &str = "/v2";
const TF_SERVING: &str = "/monitoring/prometheus/metrics";
/// Where metrics are served, the usual path first; the others belong to TensorFlow Serving and TensorRT-LLM.
const METRICS: [&str; 3] = ["/metrics", TF_SERVING, "/prometheus/metrics"];

/// An address that may serve statistics.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) at: Upstream,
    pub(super) path: String,
}

/// The addresses to ask, in order. Ports in `own` are Lapwing's own and are never asked.
pub(super) fn candidates(poll: &Poll, upstream: &Upstream, own: &[u16]) -> Vec<Candidate> {
    let usual = || std::iter::once(METADATA).chain(METRICS);
    let base = |at: &Upstream| usual().map(|path| Candidate { at: at.clone(), path: path.to_owned() }).collect::<Vec<_>>();
    match poll {
        Poll::Off => Vec::new(),
        Poll::At { authority, path } => {
            let at = Upstream::Http { authority: authority.clone(), h2: false };
            if path.is_empty() { base(&at) } else { vec![Candidate { at, path: path.clone() }] }
        }
        Poll::Auto => {
            let mut candidates = match upstream {
                // an upstream with HTTP/2 prior knowledge is asked by no other protocol
                Upstream::Http { h2: true, .. } => Vec::new(),
                _ => base(upstream),
            };
            candidates.extend(siblings(upstream, own));
            candidates
        }
    }
}

fn siblings(upstream: &Upstream, own: &[u16]) -> impl Iterator<Item = Candidate> {
    let authority = match upstream {
        Upstream::Http { authority, .. } => authority.rsplit_once(':'),
        Upstream::Unix { .. } => None,
    };
    let (host, port) = authority.map_or((String::new(), 0), |(host, port)| (host.to_owned(), port.parse().unwrap_or(0)));
    let of_port = SIBLINGS.iter().filter(move |(from, ..)| *from == port);
    let others = of_port.filter(|(_, to, _)| !own.contains(to));
    others.map(move |(_, to, path)| Candidate {
        at: Upstream::Http { authority: format!("{host}:{to}"), h2: false },
        path: (*path).to_owned(),
    })
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Metadata {
    name: String,
    extensions: Vec<String>,
}

/// The server that answers like this to [`METADATA`], and whether it serves statistics of its own.
pub(super) fn by_metadata(body: &[u8]) -> Option<(Server, bool)> {
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
pub(super) fn by_metrics(text: &str) -> Option<Server> {
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
