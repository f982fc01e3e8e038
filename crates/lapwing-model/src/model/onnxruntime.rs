//! A model run by ONNX Runtime's library, call by call.

use std::sync::Arc;

use super::batch::BatchResult;
use super::executor::{Executor, ExecutorName, Workspace};
use super::options::ModelOptions;
use crate::choice::ProviderChoice;
use lapwing_engine::onnxruntime::Session;
use lapwing_engine::placement::{Fallback, OrtProvider, Placement};
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{OnnxFile, ports};

/// A model in ONNX Runtime.
#[derive(Debug)]
pub(crate) struct OnnxRuntimeExecutor {
    session: Session,
    inputs: Vec<TensorSpec>,
    placement: Arc<Placement>,
}

impl OnnxRuntimeExecutor {
    /// A session as an executor of a file. `fallback` says why the GPU does not run its plan, if one was looked for.
    pub(crate) fn new(serving: Serving, file: Option<&OnnxFile>, fallback: Option<Fallback>) -> Self {
        let Serving { session, provider } = serving;
        // the session read the file's bytes, which lack the shapes that a user stated
        let declared = file.and_then(|file| ports::declared(&file.proto).ok()).map(|(inputs, _)| inputs).unwrap_or_default();
        let stated = |port: &TensorSpec| {
            let found = declared.iter().find(|other| other.name == port.name && other.datatype == port.datatype);
            found.unwrap_or(port).clone()
        };
        let inputs = session.inputs().iter().map(stated).collect();
        let precision = file.map_or("fp32", OnnxFile::number_format);
        let placement = match provider.0 {
            OrtProvider::Cpu => Placement::on_cpu(precision, fallback),
            OrtProvider::Cuda(device) | OrtProvider::TensorRt(device) => {
                let (device, device_name) = (format!("cuda:{device}"), Some(provider.0.name().to_owned()));
                Placement { device, device_name, ..Placement::on_cpu(precision, None) }
            }
        };
        Self { session, inputs, placement: Arc::new(placement) }
    }
}

/// A session that is to answer calls, by the provider that was asked for.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) session: Session,
    pub(crate) provider: ProviderChoice,
}

/// Loads a file in ONNX Runtime to answer calls.
///
/// # Errors
///
/// As for [`reference`].
pub(crate) fn serving(file: Option<&OnnxFile>, options: &ModelOptions) -> Result<Serving, String> {
    let session = session(file, options, options.provider)?;
    Ok(Serving { session, provider: options.provider })
}

/// Loads a file in ONNX Runtime, on the CPU, against which others are held.
///
/// # Errors
///
/// Why there is no library to use, or why it cannot run the model.
pub(crate) fn reference(file: Option<&OnnxFile>, options: &ModelOptions) -> Result<Session, String> {
    session(file, options, ProviderChoice::default())
}

fn session(file: Option<&OnnxFile>, options: &ModelOptions, provider: ProviderChoice) -> Result<Session, String> {
    let runtime = match &options.onnxruntime {
        Some(Ok(runtime)) => runtime,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("its library is not to be used (engine.ort_lib)".to_owned()),
    };
    let file = file.ok_or("it reads files, and the model was given as a graph")?;
    ports::check(&file.proto).map_err(|error| error.to_string())?;
    let loaded = Session::load(runtime, &file.source, &options.plan.threads, provider.0);
    let by = if provider.is_gpus() { format!("by {provider} (engine.ort_provider): ") } else { String::new() };
    let session = loaded.map_err(|error| format!("{by}{error}"))?;
    session.inputs().iter().try_for_each(bounded)?;
    Ok(session)
}

/// Refuses an input of which no call could be made.
fn bounded(port: &TensorSpec) -> Result<(), String> {
    const MOST: usize = 1 << 32;
    let elements = port.shape.iter().flatten().try_fold(1_usize, |product, length| product.checked_mul(*length));
    if elements.is_some_and(|elements| elements <= MOST) {
        return Ok(());
    }
    Err(format!("input {}: its shape {:?} has more than {MOST} elements", port.name, port.shape))
}

impl Executor for OnnxRuntimeExecutor {
    fn name(&self) -> ExecutorName {
        ExecutorName::OnnxRuntime
    }

    fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorSpec] {
        self.session.outputs()
    }

    fn placement(&self) -> Arc<Placement> {
        Arc::clone(&self.placement)
    }

    /// Runs calls one after the other, because their rows may depend on one another.
    fn run(&self, _: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
        let mut result = BatchResult::default();
        for call in calls {
            let ran = self.session.run(call, wanted)?;
            result.outputs.push(ran.outputs);
            result.preprocessing_ns += ran.input_ns;
            result.forward_ns += ran.forward_ns;
            result.postprocessing_ns += ran.output_ns;
        }
        Ok(result)
    }
}
