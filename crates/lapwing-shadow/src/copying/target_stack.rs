//! A target before copies are sent: its name, where it is, and the stack in front of it, the same as clients' requests walk through in
//! front of the upstream.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use super::target::{CopySource, CopyTarget};
use crate::config::{Config, SPLIT_BASELINE, SPLIT_CANDIDATE, UPSTREAM_AGAIN};
use crate::mapping::{MappingError, MappingTable, ModelPorts};
use crate::settings::ShadowSettings;
use crate::surface::TargetInfo;
use crate::tap::CopyRecognition;
use lapwing_attribution::adapters;
use lapwing_ledger::{LabelId, Ledger, TraceMark};
use lapwing_metrics::{Counters, Labels};
use lapwing_net::{ClientIdentity, LocalAddress, LocalListener, Target};
use lapwing_protocol::Protocols;
use lapwing_protocol::trace_context::{ContextPolicy, LearntContexts};
use lapwing_proxy::{ConnectionSettings, DataPlane, Levers, Profiler, TraceSampling, Tracing, UpstreamProtocol, Upstreams};
use lapwing_settings::{ConfigHandle, HttpScheme, Switch, Upstream};

/// A target that copies can be sent to.
#[derive(Debug)]
pub struct NamedTarget {
    name: String,
    address: String,
    target: Target,
    is_h2: bool,
    source: CopySource,
    /// Routes whose requests are not sent as they are.
    mappings: Arc<MappingTable>,
}

impl NamedTarget {
    /// A server; over TLS, it has to prove itself to `identity`.
    #[must_use]
    pub fn server(name: String, server: &Upstream, identity: &Arc<ClientIdentity>) -> Self {
        Self::at(name, server, Target::of(server, identity))
    }

    fn at(name: String, server: &Upstream, target: Target) -> Self {
        Self {
            name,
            address: server.to_string(),
            target,
            is_h2: matches!(server, Upstream::Http { scheme: HttpScheme::H2c, .. }),
            source: CopySource::All,
            mappings: Arc::default(),
        }
    }

    /// The model in `file`, which an engine of this process serves at `address`. Requests are mapped to its `ports` by `config`.
    ///
    /// # Errors
    ///
    /// If a mapping does not fit it.
    pub fn engine(
        name: String,
        file: &Path,
        address: SocketAddr,
        ports: &ModelPorts,
        config: &Config,
    ) -> Result<Self, MappingError> {
        let mappings = MappingTable::new(&config.mappings, config.max_body, &name, file, ports)?;
        Ok(Self {
            name,
            address: lapwing_settings::ShadowTarget::Engine(file.to_owned()).to_string(),
            target: Target::Tcp(address.to_string()),
            is_h2: false,
            source: CopySource::All,
            mappings: Arc::new(mappings),
        })
    }

    /// The upstream, which is asked a second time; with its label if it is one of several.
    #[must_use]
    pub fn upstream_again(label: Option<LabelId>, upstream: &Upstream, target: Target) -> Self {
        Self { source: CopySource::Repeat(label), ..Self::at(UPSTREAM_AGAIN.to_owned(), upstream, target) }
    }

    /// Both sides of a live split as targets: each gets copies of what the other answers. The baseline, which may be several upstreams, is
    /// the one at `baseline`.
    #[must_use]
    pub fn sides_of_split(candidate_label: LabelId, candidate: (&Upstream, Target), baseline: (&Upstream, Target)) -> [Self; 2] {
        let side =
            |name: &str, (url, target): (&Upstream, Target), source| Self { source, ..Self::at(name.to_owned(), url, target) };
        [
            side(SPLIT_CANDIDATE, candidate, CopySource::OfBaseline { candidate: candidate_label }),
            side(SPLIT_BASELINE, baseline, CopySource::OfCandidate(candidate_label)),
        ]
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Which requests it gets copies of.
    pub(crate) const fn source(&self) -> CopySource {
        self.source
    }

    /// Its mappings.
    pub(crate) fn mappings(&self) -> Arc<MappingTable> {
        self.mappings.clone()
    }

    /// Its label among the upstreams in series of copies: no client's series has it.
    pub(crate) fn label(&self) -> String {
        format!("shadow:{}", self.name)
    }

    /// As surfaces name it.
    pub(crate) fn info(&self) -> TargetInfo {
        TargetInfo {
            name: self.name.clone(),
            address: self.address.clone(),
            label: self.label(),
            is_upstream: self.source.is_repeat(),
        }
    }
}

/// What the stacks in front of all targets share.
#[derive(Clone, Debug)]
pub struct TargetStacks {
    /// The names of routes, models and upstreams.
    pub labels: Arc<Labels>,
    /// Marks the traces that Lapwing began.
    pub mark: TraceMark,
    /// The trace contexts that the upstream was found to continue.
    pub contexts: Arc<LearntContexts>,
    /// Whether a receiver of spans listens. Without one no span can arrive, so copies have no trace.
    pub receives_spans: bool,
}

impl TargetStacks {
    /// The stack in front of `target`, which is at `index` among the targets, and the sender of copies through it. Closed ledgers go to
    /// `ledgers`, and what the stack counts to `counters`.
    pub(crate) fn before(
        &self,
        target: NamedTarget,
        index: usize,
        settings: &ShadowSettings,
        ledgers: &Arc<ArrayQueue<Box<Ledger>>>,
        counters: &Arc<Counters>,
    ) -> ((LocalListener, DataPlane), CopyTarget) {
        let (address, listener) = lapwing_net::local();
        let of_connections = self.connection_settings(&target, settings, ledgers, counters);
        let sender = sender(&target, index, &address, &settings.shadow);
        let plane = DataPlane {
            settings: ConfigHandle::fixed(of_connections),
            upstreams: Upstreams::at(target.target),
            counters: counters.clone(),
            levers: Levers::default(),
            dispatch: None,
            cache: None,
            leave: tokio_util::sync::CancellationToken::new(),
        };
        ((listener, plane), sender)
    }

    fn connection_settings(
        &self,
        target: &NamedTarget,
        settings: &ShadowSettings,
        ledgers: &Arc<ArrayQueue<Box<Ledger>>>,
        counters: &Arc<Counters>,
    ) -> ConnectionSettings {
        let ShadowSettings { shadow, proxy, protocol, attribution, trace_contexts, .. } = settings;
        let observer = Profiler::new(
            ledgers.clone(),
            counters.clone(),
            self.labels.clone(),
            self.labels.upstreams.intern(&target.label()),
            Arc::new(Protocols::new(protocol)),
            adapters::reader(Arc::new(attribution.rules()), counters.clone()),
        );
        let timeout = shadow.timeout;
        let config = lapwing_proxy::Config {
            upstream_protocol: if target.is_h2 { UpstreamProtocol::H2 } else { UpstreamProtocol::Auto },
            connect_timeout: proxy.connect_timeout.min(timeout),
            header_timeout: Switch::On(timeout),
            idle_timeout: Switch::On(timeout),
            max_header_bytes: proxy.max_header_bytes,
            // what the upstream is asked for in addition, a target is asked for too
            amend: proxy.amend,
            ..lapwing_proxy::Config::default()
        };
        let sampling = if self.receives_spans { TraceSampling::Auto } else { TraceSampling::Off };
        let contexts = ContextPolicy::new(*trace_contexts, self.contexts.clone());
        ConnectionSettings {
            config,
            hold: lapwing_proxy::hold::Config::default(),
            respond_server_timing: false,
            tracing: Tracing { sampling, mark: self.mark, continued: None, contexts },
            tap: Some(CopyRecognition.into()),
            observer: Arc::new(observer),
        }
    }
}

/// A sender of copies to `target` at `index` among the targets, through the stack at `stack`.
fn sender(target: &NamedTarget, index: usize, stack: &LocalAddress, config: &Config) -> CopyTarget {
    CopyTarget::new(target.name.clone(), index, target.source, stack, config, target.mappings())
}
