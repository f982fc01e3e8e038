//! The model that is timed, and its inputs.

use super::super::cli::{BenchArgs, Products};
use super::super::error::ToolError;
use super::super::shapes::Shape;
use super::super::synthetic_inputs;
use crate::app::trial::{self, LoadLimits, Trial};
use lapwing_engine::cpu;
use lapwing_engine::gpu::DeviceRequest;
use lapwing_ledger::Stamp;
use lapwing_model::{Device, Model, ModelOptions};
use lapwing_onnx::OnnxFile;
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::tensor::Tensor;
use lapwing_plan::Precision;
use lapwing_plan::exec::CpuPrecision;
use lapwing_plan::plan::Plan;
use lapwing_plan::quant::calibration::Calibration;
use lapwing_plan::{fuse, lower};

pub(crate) const SEED: u64 = 17;
/// Inputs that take turns, so that a call does not find its inputs in the caches.
pub(crate) const TURNS: usize = 16;
/// The most bytes of all of them.
const TURNS_BYTES: usize = 64 << 20;

/// The request for a GPU; made once, whatever the numbers of threads.
pub(crate) struct Requested {
    pub(crate) gpu: Option<DeviceRequest>,
    /// How long that took: a cold start includes it.
    pub(crate) took_ns: u64,
}

impl Requested {
    pub(crate) fn of(args: &BenchArgs) -> Result<Self, ToolError> {
        let began = Stamp::now();
        let gpu = device_request(args)?;
        Ok(Self { gpu, took_ns: began.elapsed() })
    }
}

/// The request for a GPU; `None` where the model runs on the CPU. The tests' emulated device is refused: it is never measured.
pub(crate) fn device_request(args: &BenchArgs) -> Result<Option<DeviceRequest>, ToolError> {
    let directory = args.cuda_lib_dir.as_deref();
    let precision = args.precision.into();
    let request = match args.device {
        Device::Cpu => None,
        // only plans run elsewhere
        Device::Auto if !args.executor.allows_plan() => None,
        Device::Auto => DeviceRequest::auto(directory, precision),
        Device::Cuda(ordinal) => {
            let fault = |reason: String| ToolError::argument("device", format!("{}: {reason}", args.device));
            let request = DeviceRequest::device(directory, ordinal, precision).map_err(|error| fault(error.to_string()))?;
            if let Some(name) = request.emulated_name() {
                return Err(ToolError::told(format!("device: {} is {name}, which is never measured", args.device)));
            }
            Some(request)
        }
    };
    let is_own = args.gemm == Products::Own;
    Ok(request.map(|request| if is_own { request.with_own_kernels() } else { request }))
}

/// A loaded model.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    /// The plan of a model that another executor runs; it describes the inputs.
    pub(crate) other: Option<Plan>,
    pub(crate) load_ns: u64,
}

impl Loaded {
    pub(crate) fn new(args: &BenchArgs, asked: &Requested, mut plan: cpu::CpuOptions) -> Result<Self, ToolError> {
        let onnxruntime =
            args.ort_lib.find(args.ort_provider).map_err(|error| ToolError::argument("ort-lib", error.to_string()))?;
        let options =
            ModelOptions { backend: args.executor, onnxruntime, provider: args.ort_provider, ..ModelOptions::default() };
        let tried =
            trial::load(&args.model, &Trial::of(LoadLimits::default(), &options, &args.shapes)).map_err(ToolError::told)?;
        let began = Stamp::now();
        let file = OnnxFile::read(&args.model)?.with_shapes(&args.shapes)?;
        if args.precision == Precision::Int8 {
            plan.precision = match &args.calibration {
                Some(ranges) => {
                    let graph = file.graph()?;
                    Calibration::read(ranges).and_then(|found| found.precision(&graph)).map_err(ToolError::told)?
                }
                None => args.precision.into(),
            };
        }
        let calibrated = |request: DeviceRequest| match &plan.precision {
            CpuPrecision::Fp32 => request,
            CpuPrecision::Int8(_) => request.calibrated(&plan.precision),
        };
        let gpu = asked.gpu.clone().map(calibrated);
        let options = ModelOptions { gpu, plan: plan.clone(), unreadable: tried.unreadable, ..options };
        let model = Model::of(&file, &options)?;
        let load_ns = asked.took_ns + began.elapsed();
        let graph = if options.unreadable.is_none() { file.graph().ok() } else { None };
        if model.precision() != args.precision.name() {
            return Err(elsewhere(args.precision, &model));
        }
        let other = if model.plan().is_some() { None } else { graph.as_deref().and_then(lowered) };
        Ok(Self { model, other, load_ns })
    }

    pub(crate) fn inputs(&self, shape: Shape, seed: u64) -> Result<Vec<Tensor>, ToolError> {
        let mut inputs = synthetic_inputs::inputs(self.model.inputs(), self.model.plan().or(self.other.as_ref()), shape, seed);
        self.model.accept(&mut inputs)?;
        Ok(inputs)
    }

    /// Inputs that take turns: as many as their size allows if each call needs fresh ones, else one.
    pub(crate) fn turns(&self, shape: Shape, are_fresh: bool) -> Result<Vec<Vec<Tensor>>, ToolError> {
        let first = self.inputs(shape, SEED)?;
        let bytes: usize = first.iter().map(|tensor| tensor.data.len()).sum();
        let count = if are_fresh { (TURNS_BYTES / bytes.max(1)).clamp(2, TURNS) } else { 1 };
        let rest = (1..count).map(|turn| self.inputs(shape, SEED + turn as u64));
        std::iter::once(Ok(first)).chain(rest).collect()
    }
}

/// The error that the model would run in another number format than requested.
pub(crate) fn elsewhere(asked: Precision, model: &Model) -> ToolError {
    let placement = model.placement();
    let why = match (&placement.fallback, model.unsupported()) {
        (Some(fallback), _) => fallback.detail.clone(),
        (None, Some(refused)) => refused.to_string(),
        (None, None) => format!("it is run in {}", placement.precision),
    };
    ToolError::argument("precision", format!("{} cannot be had on {}: {why}", asked.name(), placement.device))
}

pub(crate) fn lowered(graph: &ShapedGraph) -> Option<Plan> {
    let mut plan = lower::lower(graph).ok()?;
    fuse::fuse(&mut plan);
    Some(plan)
}
