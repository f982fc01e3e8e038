//! Loads the engine's models: how they run, the trial, the executor of each, and what the log says of it.

use std::sync::{Arc, Once};

use super::error::{HostError, ReadError};
use crate::app::trial::{self, LoadLimits, Trial};
use crate::serving::config::{Config, ModelToServe, Verify};
use lapwing_engine::gpu::DeviceRequest;
use lapwing_engine::onnxruntime::{LibraryError, Runtime};
use lapwing_engine::placement::{FallbackCause, Placement};
use lapwing_model::{Backend, BatchTrial, Device, ExecutorName, Model, ModelOptions, NotUsed, ProviderChoice, Verification};
use lapwing_plan::Precision;

/// Loads one model.
///
/// # Errors
///
/// [`HostError::Model`] names it, and what is wrong with it.
pub(crate) fn load(config: &Config, wanted: &ModelToServe<'_>, options: &ModelOptions) -> Result<Model, HostError> {
    let (name, path) = (wanted.name.clone(), wanted.path.display().to_string());
    let model = read(config, wanted, options).map_err(|cause| HostError::Model { name, path, cause })?;
    tell_executor(&wanted.name, &model);
    tell(&wanted.name, &model.placement());
    Ok(model)
}

/// Logs why a model has no plan, which executors were passed over, and what came of holding it against ONNX Runtime.
fn tell_executor(name: &str, model: &Model) {
    let executor = model.executor().name();
    match model.verification() {
        Verification::Differs(difference) => {
            tracing::warn!(
                model = name,
                executor,
                difference = lapwing_net::error_text(difference),
                "answered wrongly by another executor, and moved"
            );
        }
        verification => tracing::info!(model = name, executor, "{}", lapwing_net::error_text(verification)),
    }
    if let Some(ratio) = model.measured().ratio() {
        tracing::info!(model = name, executor, ratio, "timed beside ONNX Runtime: ours takes {}", model.measured());
    }
    for note in model.notes() {
        tracing::warn!(model = name, executor, "{note}");
    }
    tracing::info!(model = name, executor, "batch axis: {}", lapwing_net::error_text(model.batch_axis()));
    // a classical model has no other plan, and what takes less time is no fault of the other
    let is_moved = model.executor() == ExecutorName::OnnxRuntime && model.measured().ratio().is_some();
    let is_expected = is_moved || model.executor() == ExecutorName::Tabular;
    for NotUsed { executor: other, reason } in model.not_used() {
        let reason = lapwing_net::error_text(reason);
        match model.verification() {
            Verification::Differs(_) => {}
            _ if is_expected => tracing::info!(model = name, executor, reason, "is not run by {other}"),
            _ => tracing::warn!(model = name, executor, reason, "is not run by {other}"),
        }
    }
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

fn read(config: &Config, wanted: &ModelToServe<'_>, options: &ModelOptions) -> Result<Model, ReadError> {
    use lapwing_onnx::OnnxFile;
    use lapwing_plan::quant::calibration::Calibration;

    let limits = LoadLimits { memory: config.load_memory, time: config.load_time };
    let tried = trial::load(wanted.path, &Trial::of(limits, options, &wanted.shapes))?;
    let file = OnnxFile::read(wanted.path)?.with_shapes(&wanted.shapes)?;
    let mut options = ModelOptions { unreadable: tried.unreadable, batch_trial: Some(tried.batch_trial), ..options.clone() };
    if let Some(ranges) = config.calibration.on() {
        options.plan.precision = Calibration::read(ranges.path())?.precision(&*file.graph()?)?;
        options.gpu = options.gpu.map(|request| request.calibrated(&options.plan.precision));
    }
    // the trial ran on the CPU and has no doubts: it need not be done twice
    match tried.verification.filter(|_| options.gpu.is_none() && !options.provider.is_gpus() && options.unreadable.is_none()) {
        Some(verification) => Ok(Model::of(&file, &ModelOptions { verify: false, ..options })?.with_verification(verification)),
        None => Ok(Model::of(&file, &options)?),
    }
}

/// The processors to which the engine's threads are pinned.
pub(crate) fn cpus(config: &Config, reserved: usize) -> Vec<usize> {
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

/// How the models run.
///
/// # Errors
///
/// [`HostError`] names the setting that cannot be had on this machine.
pub(crate) fn options(config: &Config, reserved: usize, cpus: &[usize]) -> Result<ModelOptions, HostError> {
    use lapwing_engine::cpu::{self, threads::Threads};

    let count = match (config.threads, cpus.len()) {
        (0, 0) => cpu::threads::usable().len().saturating_sub(reserved).max(1),
        (0, places) => places,
        (count, _) => count,
    };
    let threads = Threads::new(count, cpus).map_err(|e| HostError::Threads(e.to_string()))?;
    let plan = cpu::CpuOptions { threads: Arc::new(threads), precision: config.precision.into(), ..cpu::CpuOptions::default() };
    let (backend, gpu) = (config.executor, device_request(config)?);
    // int8 differs from any library by its own contract
    let verify = config.verify == Verify::Auto && config.precision != Precision::Int8;
    let onnxruntime = config.ort_lib.find(config.ort_provider).map_err(HostError::Library)?;
    let provider = config.ort_provider;
    tell_library(onnxruntime.as_ref(), provider);
    let measure = verify && backend == Backend::Auto;
    let batch_trial = Some(BatchTrial::Here);
    Ok(ModelOptions { backend, plan, gpu, onnxruntime, provider, unreadable: None, verify, measure, batch_trial })
}

/// Logs which library of ONNX Runtime is used, and which were passed over.
fn tell_library(found: Option<&Result<Runtime, LibraryError>>, provider: ProviderChoice) {
    match found {
        None => {}
        Some(Ok(runtime)) => {
            for reason in runtime.passed_over() {
                tracing::warn!(reason = lapwing_net::error_text(reason), "a library of ONNX Runtime cannot be used");
            }
            let (version, unused) = (runtime.version(), provider.unused(runtime).join(", "));
            tracing::info!(library = %runtime.path().display(), version, origin = runtime.origin(), %provider, unused, "ONNX Runtime is found");
        }
        Some(Err(error)) => tracing::info!(reason = lapwing_net::error_text(error), "ONNX Runtime is not used"),
    }
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
        // only plans run elsewhere
        Device::Auto if !config.executor.allows_plan() => Ok(None),
        Device::Auto => Ok(DeviceRequest::auto(directory, precision)),
        device @ Device::Cuda(ordinal) => match DeviceRequest::device(directory, ordinal, precision) {
            Ok(request) => Ok(Some(request)),
            Err(error) => Err(HostError::Device { device, reason: error.to_string() }),
        },
    }
}
