//! The data plane as shipped, with an observer that does nothing, and no thread beside it: what Lapwing would cost if it did not
//! profile. `benches/profiling_cost.py` measures the shipped binary beside it; nobody else should use it.
//!
//! usage: `unobserved LISTEN UPSTREAM [h1|h2]`, two addresses `host:port`; the protocol to the upstream (default: h1)

#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

use std::sync::Arc;

use http::{HeaderMap, Method};
use lapwing_ledger::{Ledger, TraceMark};
use lapwing_metrics::Counters;
use lapwing_net::Target;
use lapwing_protocol::ExchangeReader;
use lapwing_protocol::trace_context::ContextPolicy;
use lapwing_proxy::{
    self, Config, ConnectionSettings, DataPlane, Levers, Observer, RecordLedger, TraceSampling, Tracing, UpstreamProtocol,
    Upstreams,
};
use lapwing_settings::ConfigHandle;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

struct Nothing;

impl Observer for Nothing {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        None
    }

    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}

    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for Nothing {
    fn record(&self, _: Box<Ledger>) {}
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (listen, upstream, protocol) = match &arguments[..] {
        [listen, upstream] => (listen, upstream, "h1"),
        [listen, upstream, protocol] => (listen, upstream, protocol.as_str()),
        _ => panic!("usage: unobserved LISTEN UPSTREAM [h1|h2]"),
    };
    let settings = ConnectionSettings {
        config: Config {
            upstream_protocol: if protocol == "h2" { UpstreamProtocol::H2 } else { UpstreamProtocol::H1 },
            ..Config::default()
        },
        hold: lapwing_proxy::hold::Config::default(),
        respond_server_timing: false,
        tracing: Tracing {
            sampling: TraceSampling::Auto,
            mark: TraceMark::random(),
            continued: None,
            contexts: ContextPolicy::default(),
        },
        tap: None,
        observer: Arc::new(Nothing),
    };
    let counters = Arc::new(Counters::default());
    let parts = DataPlane {
        settings: ConfigHandle::fixed(settings),
        upstreams: Upstreams::at(Target::Tcp(upstream.clone())),
        counters,
        levers: Levers::default(),
        dispatch: None,
        cache: None,
        leave: CancellationToken::new(),
    };
    let listener = lapwing_net::bind(listen.parse().expect("LISTEN: an address host:port"), 4096, lapwing_net::Sharing::Alone)
        .expect("the address is free");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(lapwing_proxy::serve(listener, parts, CancellationToken::new())).expect("it serves until it is killed");
}
