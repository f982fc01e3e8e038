//! The engine inside this process: it loads the models, runs each on its own thread, and serves them all on one more thread.

mod demand;
mod error;
mod load;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio_util::sync::CancellationToken;

pub(crate) use self::demand::plan_demand;
pub(crate) use self::error::HostError;
use self::load::{cpus, load, options};
use crate::serving::config::Config;
use crate::serving::{Catalogue, Limits, serve};
use lapwing_admin::{HostedFallback, HostedModel};
use lapwing_diagnosis::cost::{CostLine, OptimalTime, Optimum, processor_name};
use lapwing_engine::placement::Fallback;
use lapwing_ledger::Unit;
use lapwing_model::served::Served;
use lapwing_model::service::Servable;
use lapwing_model::{ExecutorName, Model};
use lapwing_onnx::tensor::TensorSpec;
use lapwing_settings::{Bind, Period, Switch};
use lapwing_shadow::mapping::{ModelPorts, TensorPort};

/// The running engine. [`Hosted::stop`] ends it; dropping it waits for the calls in the models' queues.
#[derive(Debug)]
pub(crate) struct Hosted {
    address: SocketAddr,
    catalogue: Arc<Catalogue>,
    stop: CancellationToken,
    thread: JoinHandle<io::Result<()>>,
}

impl Hosted {
    /// Loads every model, starts their warm-up, and serves them; calls are refused until the models are warm. `drain` is how long
    /// calls may take to finish at shutdown. If the configuration names no number of threads, `reserved` processors stay free.
    ///
    /// # Errors
    ///
    /// [`HostError`] names the setting or the model that is at fault; nothing is left running then.
    pub(crate) fn start(config: &Config, reserved: usize, drain: Period) -> Result<Self, HostError> {
        Self::start_with(config, reserved, drain, std::convert::identity)
    }

    fn start_with(
        config: &Config,
        reserved: usize,
        drain: Period,
        adapt: impl FnOnce(Catalogue) -> Catalogue,
    ) -> Result<Self, HostError> {
        let address = config.listen.get();
        let listener =
            lapwing_net::bind(address, 1024, lapwing_net::Sharing::Alone).map_err(|cause| HostError::Bind { address, cause })?;
        let address = listener.local_addr().map_err(|cause| HostError::Bind { address, cause })?;
        let cpus = cpus(config, reserved);
        let options = options(config, reserved, &cpus)?;
        let mut models: Vec<Arc<dyn Servable>> = Vec::new();
        for (at, wanted) in config.wanted().enumerate() {
            let model = load(config, &wanted, &options)?;
            let cpu = own_cpu(&model, at, &cpus, options.threads());
            let served = Served::start(&wanted.name, &wanted.version, model, config.batching(), cpu);
            models.push(Arc::new(served.map_err(|e| HostError::Threads(e.to_string()))?));
        }
        let catalogue = Arc::new(adapt(Catalogue::new(models)?));
        let limits = Limits {
            max_body: config.max_body,
            body_budget: config.body_budget,
            timeout: config.timeout.on().copied(),
            grace: drain,
            ..Limits::default()
        };
        let (stop, served) = (CancellationToken::new(), catalogue.clone());
        let until = stop.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                serve(listener, served, limits, until).await
            })
        };
        let thread = std::thread::Builder::new().name("lapwing-engine".to_owned()).spawn(run);
        let thread = thread.map_err(|e| HostError::Threads(e.to_string()))?;
        Ok(Self { address, catalogue, stop, thread })
    }

    /// Loads one model, which answers calls of any model's name, and serves it on a free port of this machine. Everything else is as
    /// `config` has it.
    ///
    /// # Errors
    ///
    /// As for [`Hosted::start`].
    pub(crate) fn start_one(config: &Config, name: &str, path: &Path, reserved: usize, drain: Period) -> Result<Self, HostError> {
        let models = [(name.to_owned(), path.to_owned())].into();
        let alone = Config { model: Switch::Off, models, listen: Bind::loopback(0), ..config.clone() };
        Self::start_with(&alone, reserved, drain, Catalogue::answering_any_name)
    }

    /// The address it serves on.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The models that it serves.
    pub(crate) fn models(&self) -> Models {
        Models(self.catalogue.clone())
    }

    /// What its one model takes and gives.
    pub(crate) fn ports(&self) -> ModelPorts {
        self.models().ports()
    }

    /// Whether its thread has ended unexpectedly.
    pub(crate) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Takes no more calls, waits for the calls in flight, and ends.
    ///
    /// # Errors
    ///
    /// The error with which its thread ended.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.stop.cancel();
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the engine's thread panicked")))
    }
}

/// The processor of the thread of a model, the `at`th of all; `None` if it may use any.
fn own_cpu(model: &Model, at: usize, cpus: &[usize], threads: usize) -> Option<usize> {
    match model.executor() {
        // several threads form a pool that pins itself
        ExecutorName::Plan | ExecutorName::Rten if threads > 1 => None,
        // the others are its own, and pinned
        ExecutorName::OnnxRuntime if threads > 1 => cpus.first().copied(),
        _ => cpus.get(at % cpus.len().max(1)).copied(),
    }
}

/// The models that this process serves.
#[derive(Clone, Debug)]
pub(crate) struct Models(Arc<Catalogue>);

impl Models {
    /// Every version of every model, by name, then by version.
    pub(crate) fn list(&self) -> Vec<HostedModel> {
        self.0.models().map(|model| hosted_model(&**model)).collect()
    }

    /// What the warm-up of a model measured, in its highest version; `None` until then.
    pub(crate) fn optimum(&self, name: &str) -> Option<Optimum> {
        self.optimum_named(name, "engine")
    }

    /// The same of the model of a shadow target; the optimum has the target's name.
    pub(crate) fn optimum_of_target(&self, name: &str) -> Option<Optimum> {
        self.optimum_named(name, &format!("engine {name}"))
    }

    fn optimum_named(&self, name: &str, called: &str) -> Option<Optimum> {
        let model = self.0.models().filter(|model| model.about().name == name).last()?;
        let (line, placement) = (model.warm_line()?, model.placement());
        let unit = if line.counts_tokens { Unit::InputToken } else { Unit::Row };
        let device = placement.device_name.clone().or_else(processor_name).unwrap_or_else(|| placement.device.clone());
        Some(Optimum {
            name: format!("{called} in this process ({device}, {}), calibrated at its warm-up", placement.precision).into(),
            time: OptimalTime::Line(CostLine { fixed_ns: line.fixed_ns, ns_per_unit: line.unit_ns, unit }),
            memory: None,
        })
    }

    /// What the first model reads and answers.
    pub(crate) fn ports(&self) -> ModelPorts {
        // every datatype of the engine is one of the protocol
        let port = |spec: &TensorSpec| TensorPort::new(spec.name.clone(), spec.datatype.name(), spec.shape.clone());
        let ports = |specs: &[TensorSpec]| specs.iter().filter_map(port).collect();
        let first = self.0.models().next().map(|model| model.about());
        first
            .map_or_else(ModelPorts::default, |about| ModelPorts { inputs: ports(&about.inputs), outputs: ports(&about.outputs) })
    }

    /// Whether every model is warm and can run.
    ///
    /// # Errors
    ///
    /// One line for each model that is not: its name, its version, and the reason.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        self.0.readiness()
    }
}

fn hosted_model(served: &dyn Servable) -> HostedModel {
    let (about, placement) = (served.about(), served.placement());
    let fallback = |fallback: &Fallback| HostedFallback { reason: fallback.cause.label(), told: fallback.detail.clone() };
    HostedModel {
        name: about.name.clone(),
        version: about.version.clone(),
        executor: about.executor.name(),
        device: placement.device.clone(),
        device_name: placement.device_name.clone(),
        precision: placement.precision,
        ready: served.is_ready(),
        fallback: placement.fallback.as_ref().map(fallback),
        fault: placement.fault.clone(),
    }
}
