//! What the engine can use on this machine: a GPU, and ONNX Runtime's library. What is missing matters only if the configuration has
//! models, or names it.

use super::check::DoctorReport;
use crate::serving::config::Config;
use lapwing_engine::HAS_ONNXRUNTIME;
use lapwing_model::{Backend, Device, OrtLibrary};

pub(crate) fn check(config: &Config, report: &mut DoctorReport) {
    gpu(config, report);
    onnx_runtime(config, report);
}

/// Whether models are to run, or this command was started for their sake.
const NOT_NEEDED: &str = "the configuration has no model";

#[cfg(feature = "cuda")]
fn gpu(config: &Config, report: &mut DoctorReport) {
    use lapwing_engine::gpu::device::Driver;

    const NAME: &str = "gpu";
    let folder = config.cuda_lib_dir.on().map(|folder| folder.path());
    let driver = match Driver::find(folder) {
        Ok(driver) => driver,
        Err(error) => return without_gpu(config, &error.to_string(), report),
    };
    let devices = driver.devices.iter().map(|device| format!("cuda:{} {}", device.ordinal, device.name)).collect::<Vec<_>>();
    let found = format!("{}, by a driver for CUDA {}", devices.join(", "), driver.driver);
    let wanted = if let Device::Cuda(ordinal) = config.device { ordinal } else { 0 };
    match driver.device(wanted).and_then(lapwing_engine::gpu::device::DeviceInfo::supported) {
        Ok(()) => report.ok(NAME, found),
        Err(error) => without_gpu(config, &format!("{found}: {error}"), report),
    }
}

#[cfg(not(feature = "cuda"))]
fn gpu(config: &Config, report: &mut DoctorReport) {
    without_gpu(config, "this build was made without the feature `cuda`", report);
}

fn without_gpu(config: &Config, reason: &str, report: &mut DoctorReport) {
    const NAME: &str = "gpu";
    match config.device {
        Device::Cuda(_) if config.is_on() => {
            let advice = "install NVIDIA's driver, let the container have the device (--gpus all, nvidia.com/gpu), or set engine.device to auto";
            report.wrong(NAME, format!("engine.device is {}: {reason}", config.device), advice);
        }
        Device::Auto if config.is_on() => report.note(
            NAME,
            format!("{reason}: models run on the processor"),
            "if there is a GPU, install its driver, or let the container have it; else set engine.device to cpu",
        ),
        _ if config.is_on() => report.ok(NAME, format!("{reason}; engine.device is {}", config.device)),
        _ => report.ok(NAME, format!("{reason}; {NOT_NEEDED}")),
    }
}

fn onnx_runtime(config: &Config, report: &mut DoctorReport) {
    const NAME: &str = "onnxruntime";
    if !HAS_ONNXRUNTIME {
        return report.ok(NAME, "this build was made without the feature `onnxruntime`");
    }
    let install = "pip install onnxruntime in the environment that is in use, or name its library (engine.ort_lib)";
    match config.ort_lib.find(config.ort_provider) {
        Ok(None) => report.ok(NAME, "engine.ort_lib is off"),
        Ok(Some(Ok(runtime))) => report.ok(NAME, format!("{} {}", runtime.path().display(), runtime.version())),
        Ok(Some(Err(error))) if config.is_on() && config.executor == Backend::OnnxRuntime => report.wrong(NAME, error, install),
        Ok(Some(Err(error))) if config.is_on() => {
            report.note(NAME, format!("{error}; models without a plan are run by rten, and none is verified"), install)
        }
        Ok(Some(Err(error))) => report.ok(NAME, format!("{error}; {NOT_NEEDED}")),
        Err(error) if config.ort_lib == OrtLibrary::Auto => report.wrong(NAME, error, install),
        Err(error) => report.wrong(NAME, error, "name a library of ONNX Runtime 1.17 or later, or set engine.ort_lib to auto"),
    }
}
