//! The engine inside this process: it loads the models, runs each on its own thread, and serves them all on one more thread.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Once};
use std::thread::JoinHandle;

use tokio_util::sync::CancellationToken;

use super::trial::{self, LoadLimits};
use crate::serving::config::{Config, ModelToServe};
use crate::serving::{Catalogue, CatalogueError, Limits, serve};
use lapwing_admin::{HostedFallback, HostedModel};
use lapwing_diagnosis::cost::{CostLine, ModelDemand, OptimalTime, Optimum, processor_name};
use lapwing_engine::gpu::DeviceRequest;
use lapwing_engine::placement::{Fallback, FallbackCause, Placement};
use lapwing_ledger::Unit;
use lapwing_model::served::Served;
use lapwing_model::service::Servable;
use lapwing_model::{Backend, Device, Model, ModelOptions};
use lapwing_plan::tensor::TensorSpec;
use lapwing_settings::{Bind, Period, Switch};
use lapwing_shadow::mapping::{ModelPorts, TensorPort};

/// Why the engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The address could not be listened on.
    #[error("engine.listen: {address}: {cause}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        cause: io::Error,
    },
    /// A model could not be loaded.
    #[error("engine: model {name}, {path}: {cause}")]
    Model {
        /// Its name.
        name: String,
        /// Its file.
        path: String,
        /// What is wrong with it.
        cause: ReadError,
    },
    /// The requested device cannot be used.
    #[error("engine.device: {device}: {reason}")]
    Device {
        /// The setting's value.
        device: Device,
        /// Why it cannot be used.
        reason: String,
    },
    /// The models cannot be served together.
    #[error("engine: {0}")]
    Catalogue(#[from] CatalogueError),
    /// Threads cannot be started or pinned.
    #[error("engine: {0}")]
    Threads(String),
}

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
        // a single thread is the model's own; several form a pool that pins itself
        let cpus = if options.threads() == 1 { cpus } else { Vec::new() };
        let mut models: Vec<Arc<dyn Servable>> = Vec::new();
        for (at, wanted) in config.wanted().enumerate() {
            let model = load(config, &wanted, &options)?;
            let cpu = (!cpus.is_empty()).then(|| cpus[at % cpus.len()]);
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
        executor: about.executor,
        device: placement.device.clone(),
        device_name: placement.device_name.clone(),
        precision: placement.precision,
        ready: served.is_ready(),
        fallback: placement.fallback.as_ref().map(fallback),
        fault: placement.fault.clone(),
    }
}

fn load(config: &Config, wanted: &ModelToServe<'_>, options: &ModelOptions) -> Result<Model, HostError> {
    let (name, path) = (wanted.name.clone(), wanted.path.display().to_string());
    let model = read(config, wanted.path, options).map_err(|cause| HostError::Model { name, path, cause })?;
    if let (Some(node), Backend::Auto) = (model.unsupported(), config.executor) {
        tracing::warn!(
            model = wanted.name,
            refused = lapwing_net::error_text(&node),
            "has no plan and is run by tract, call by call"
        );
    }
    tell(&wanted.name, &model.placement());
    Ok(model)
}

/// Logs why a model runs on the CPU although a GPU was looked for. A missing driver concerns the machine, not the model, so it is
/// logged once.
fn tell(model: &str, placement: &Placement) {
    static NO_DRIVER: Once = Once::new();
    match &placement.fallback {
        None => {}
        Some(fallback) if fallback.cause == FallbackCause::NoDriver => NO_DRIVER.call_once(|| {
            tracing::info!(reason = fallback.cause.label(), "device auto: models run on the processor: {}", fallback.detail);
        }),
        Some(fallback) => {
            tracing::warn!(model, reason = fallback.cause.label(), "runs on the processor: {}", fallback.detail);
        }
    }
}

/// What a model's plan asks of a device, with numbers of four bytes; by tokens at sequences of 128, else by rows. The layers between
/// do not count as bytes: a device may keep them in its caches.
///
/// # Errors
///
/// Why the file cannot be read, or has no plan.
pub(crate) fn plan_demand(path: &Path) -> Result<ModelDemand, String> {
    use lapwing_plan::onnx::Graph;
    use lapwing_plan::plan::BatchSize;
    use lapwing_plan::{fuse, lower};

    const LENGTH: usize = 128;
    trial::load(path, LoadLimits::default()).map_err(|error| error.to_string())?;
    let graph = Graph::read(path).map_err(|error| error.to_string())?;
    let mut plan = lower::lower(&graph.typed).map_err(|error| error.to_string())?;
    fuse::fuse(&mut plan);
    let (unit, length) =
        if plan.has_tokens() { (Unit::InputToken, plan.longest().map_or(LENGTH, |n| n.min(LENGTH))) } else { (Unit::Row, 1) };
    let (one, two) = (plan.total(BatchSize::uniform(1, length)), plan.total(BatchSize::uniform(2, length)));
    // of two batches, the second has twice the units and the same weights
    let units = length as f64;
    let added = two.min_bytes.saturating_sub(one.min_bytes) as f64;
    Ok(ModelDemand {
        unit,
        flops_per_unit: one.cost.flops as f64 / units,
        weight_bytes: (one.min_bytes as f64 - added).max(0.0),
        bytes_per_unit: added / units,
    })
}

type ReadError = Box<dyn std::error::Error + Send + Sync>;

fn read(config: &Config, path: &Path, options: &ModelOptions) -> Result<Model, ReadError> {
    use lapwing_plan::onnx::Graph;
    use lapwing_plan::quant::calibration::Calibration;

    trial::load(path, LoadLimits { memory: config.load_memory, time: config.load_time })?;
    let graph = Graph::read(path)?;
    let mut options = options.clone();
    if let Some(file) = config.calibration.on() {
        options.plan.precision = Calibration::read(file.path())?.precision(&graph)?;
        options.gpu = options.gpu.map(|request| request.calibrated(&options.plan.precision));
    }
    Ok(Model::new(graph, &options)?)
}

/// The processors to which the engine's threads are pinned.
fn cpus(config: &Config, reserved: usize) -> Vec<usize> {
    use lapwing_settings::Cpus;

    let usable = lapwing_engine::cpu::threads::usable();
    let count = if config.threads == 0 { usable.len().saturating_sub(reserved) } else { config.threads };
    match &config.cpus {
        Cpus::These(numbers) => numbers.clone(),
        // the last processors: the system then keeps the data plane's threads on the others
        Cpus::Auto if reserved > 0 && count > 0 && count + reserved <= usable.len() => usable[usable.len() - count..].to_vec(),
        Cpus::Auto => Vec::new(),
    }
}

fn options(config: &Config, reserved: usize, cpus: &[usize]) -> Result<ModelOptions, HostError> {
    use lapwing_engine::cpu::{self, threads::Threads};

    let count = match (config.threads, cpus.len()) {
        (0, 0) => cpu::threads::usable().len().saturating_sub(reserved).max(1),
        (0, places) => places,
        (count, _) => count,
    };
    let threads = Threads::new(count, cpus).map_err(|e| HostError::Threads(e.to_string()))?;
    let plan = cpu::CpuOptions { threads: Arc::new(threads), precision: config.precision.into(), ..cpu::CpuOptions::default() };
    Ok(ModelOptions { backend: config.executor, plan, gpu: device_request(config)? })
}

/// The request for a GPU; `None` if models run on the CPU.
///
/// # Errors
///
/// [`HostError::Device`] if the configuration names a device that cannot be used: nothing runs elsewhere then.
fn device_request(config: &Config) -> Result<Option<DeviceRequest>, HostError> {
    let directory = config.cuda_lib_dir.on().map(lapwing_settings::Folder::path);
    let precision = config.precision.into();
    match config.device {
        Device::Cpu => Ok(None),
        // tract runs on the CPU only
        Device::Auto if config.executor == Backend::Tract => Ok(None),
        Device::Auto => Ok(DeviceRequest::auto(directory, precision)),
        device @ Device::Cuda(ordinal) => match DeviceRequest::device(directory, ordinal, precision) {
            Ok(request) => Ok(Some(request)),
            Err(error) => Err(HostError::Device { device, reason: error.to_string() }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(name: &str) -> Result<ModelDemand, String> {
        plan_demand(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans").join(name))
    }

    #[test]
    fn a_plan_says_what_it_asks_of_a_device() {
        // 7 to 4 numbers by 180 products; 202 parameters
        let wanted = ModelDemand { unit: Unit::Row, flops_per_unit: 360.0, weight_bytes: 808.0, bytes_per_unit: 44.0 };
        assert_eq!(demand("mlp-3.onnx"), Ok(wanted));
        let tokens = demand("bert-pre-1.onnx").unwrap();
        assert!(tokens.unit == Unit::InputToken && tokens.flops_per_unit > 0.0 && tokens.weight_bytes > tokens.bytes_per_unit);
        assert!(demand("refused-conv.onnx").is_err() && demand("none.onnx").is_err());
    }
}
