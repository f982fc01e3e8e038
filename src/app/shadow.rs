//! What shadow-serving and replays get of the command: their settings, and their targets, of which the engine runs some.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::hosted::{Hosted, Models};
use super::start_error::StartError;
use super::upstreams::RunningUpstreams;
use crate::config::Config;
use lapwing_diagnosis::cost::TargetEngine;
use lapwing_ledger::Stamp;
use lapwing_net::ClientIdentity;
use lapwing_settings::ShadowTarget;
use lapwing_shadow::{NamedTarget, ShadowParts, ShadowSettings, ShadowThreads, TargetStacks, start_shadow};

/// How long models that are replayed to have to become ready, in nanoseconds.
const WARM_UP_NS: u64 = 120_000_000_000;
/// How often they are asked.
const READINESS_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

/// The settings of shadow-serving, recordings and replays by `config`.
pub(crate) fn settings(config: &Config) -> ShadowSettings {
    ShadowSettings {
        shadow: config.shadow.clone(),
        upstream: config.upstream.clone(),
        proxy: config.proxy.clone(),
        protocol: config.protocol.clone(),
        attribution: config.attribution.clone(),
        metrics: config.metrics.clone(),
        trace_contexts: config.trace_contexts,
    }
}

/// Shadow-serving while it runs, with the engines of its targets.
#[derive(Debug)]
pub(crate) struct RunningShadow {
    threads: Option<ShadowThreads>,
    engines: TargetEngines,
}

/// Starts shadow-serving by `config`; it shares nothing, and nothing runs, if no target is configured.
///
/// # Errors
///
/// If a model cannot be loaded, or a thread cannot be started.
pub(crate) fn start(
    config: &Config,
    (upstreams, identity): (&RunningUpstreams, &Arc<ClientIdentity>),
    stacks: &TargetStacks,
) -> Result<(Option<ShadowParts>, RunningShadow), StartError> {
    let (mut targets, engines) = TargetEngines::start(&config.shadow.targets, config, identity)?;
    if config.split.compares() {
        targets.extend(upstreams.sides_of_split().into_iter().flatten());
    }
    let started = start_shadow(&settings(config), upstreams.repeated(), targets, stacks).map_err(StartError::Thread)?;
    let (parts, threads) = started.unzip();
    Ok((parts, RunningShadow { threads, engines }))
}

impl RunningShadow {
    /// The optima of the models that the engine runs as `targets`.
    pub(crate) fn optima(&self, targets: &BTreeMap<String, ShadowTarget>) -> Vec<TargetEngine> {
        self.engines.optima(targets)
    }

    /// Drops the copies in flight, and ends.
    ///
    /// # Errors
    ///
    /// The error with which a thread ended.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.threads.map_or(Ok(()), ShadowThreads::stop).and(self.engines.stop())
    }
}

/// The engines that run models as targets, in the order of these.
#[derive(Debug, Default)]
pub(crate) struct TargetEngines(Vec<Hosted>);

impl TargetEngines {
    /// The targets by their names and addresses. The models among them are loaded.
    ///
    /// # Errors
    ///
    /// If a model cannot be loaded, or a mapping does not fit it.
    pub(crate) fn start<'t>(
        targets: impl IntoIterator<Item = (&'t String, &'t ShadowTarget)>,
        config: &Config,
        identity: &Arc<ClientIdentity>,
    ) -> Result<(Vec<NamedTarget>, Self), StartError> {
        let (mut named, mut engines) = (Vec::new(), Vec::new());
        for (name, target) in targets {
            named.push(match target {
                ShadowTarget::Server(server) => NamedTarget::server(name.clone(), server, identity),
                ShadowTarget::Engine(path) => {
                    let workers = config.proxy.worker_threads();
                    let engine = Hosted::start_one(&config.engine, name, path, workers, config.drain_timeout)?;
                    let target = NamedTarget::engine(name.clone(), path, engine.address(), &engine.ports(), &config.shadow)?;
                    engines.push(engine);
                    target
                }
            });
        }
        Ok((named, Self(engines)))
    }

    /// Waits until all models are warm.
    ///
    /// # Errors
    ///
    /// Why they are not, after two minutes.
    pub(crate) fn await_ready(&self) -> Result<(), String> {
        let until = Stamp::now().plus(WARM_UP_NS);
        self.0.iter().map(Hosted::models).try_for_each(|models| {
            while let Err(reason) = models.readiness() {
                if Stamp::now() > until {
                    return Err(reason);
                }
                std::thread::sleep(READINESS_INTERVAL);
            }
            Ok(())
        })
    }

    /// The optima of the models that the engine runs as `targets`.
    fn optima(&self, targets: &BTreeMap<String, ShadowTarget>) -> Vec<TargetEngine> {
        let is_engine = |(_, (_, target)): &(usize, (&String, &ShadowTarget))| matches!(target, ShadowTarget::Engine(_));
        let engines = targets.iter().enumerate().filter(is_engine).zip(&self.0);
        engines.map(|((index, (name, _)), engine)| target_engine(index, name.clone(), engine.models())).collect()
    }

    /// Ends them all.
    ///
    /// # Errors
    ///
    /// The error with which the first ended.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.0.into_iter().map(Hosted::stop).fold(Ok(()), io::Result::and)
    }
}

/// The optimum of the target at `index`, whose engine runs `models`.
fn target_engine(index: usize, name: String, models: Models) -> TargetEngine {
    TargetEngine::new(index, Box::new(move || models.optimum_of_target(&name)))
}
