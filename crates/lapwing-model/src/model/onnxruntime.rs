//! A model run by ONNX Runtime's library, call by call.

use std::sync::Arc;

use super::batch::BatchResult;
use super::executor::{Executor, ExecutorName, Workspace};
use super::options::ModelOptions;
use lapwing_engine::onnxruntime::Session;
use lapwing_engine::placement::{Fallback, Placement};
use lapwing_onnx::EngineError;
use lapwing_onnx::tensor::{Tensor, TensorSpec};
use lapwing_onnx::{ModelSource, OnnxFile, ports};

/// A model in ONNX Runtime.
#[derive(Debug)]
pub(crate) struct OnnxRuntimeExecutor {
    session: Session,
    inputs: Vec<TensorSpec>,
    placement: Arc<Placement>,
}

impl OnnxRuntimeExecutor {
    /// A session as an executor of a file. `fallback` says why no GPU runs it, if one was looked for.
    pub(crate) fn new(session: Session, file: Option<&OnnxFile>, fallback: Option<Fallback>) -> Self {
        // the session read the file's bytes, which lack the shapes that a user stated
        let declared = file.and_then(|file| ports::declared(&file.proto).ok()).map(|(inputs, _)| inputs).unwrap_or_default();
        let stated = |port: &TensorSpec| {
            let found = declared.iter().find(|other| other.name == port.name && other.datatype == port.datatype);
            found.unwrap_or(port).clone()
        };
        let inputs = session.inputs().iter().map(stated).collect();
        let precision = file.map_or("fp32", OnnxFile::weight_format);
        Self { session, inputs, placement: Arc::new(Placement::on_cpu(precision, fallback)) }
    }
}

/// Loads a file in ONNX Runtime.
///
/// # Errors
///
/// Why there is no library to use, or why it cannot run the model.
pub(crate) fn session(file: Option<&OnnxFile>, options: &ModelOptions) -> Result<Session, String> {
    let runtime = match &options.onnxruntime {
        Some(Ok(runtime)) => runtime,
        Some(Err(error)) => return Err(error.to_string()),
        None => return Err("its library is not to be used (engine.ort_lib)".to_owned()),
    };
    let file = file.ok_or("it reads files, and the model was given as a graph")?;
    ports::check(&file.proto).map_err(|error| error.to_string())?;
    let session = match &file.source {
        ModelSource::File(path) => Session::from_file(runtime, path, &options.plan.threads),
        ModelSource::Memory(bytes) => Session::from_bytes(runtime, bytes, &options.plan.threads),
    };
    let session = session.map_err(|error| error.to_string())?;
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
