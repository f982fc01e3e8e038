//! A model in tract's form.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::messages::ModelProto;
use tract_onnx::prelude::{Framework, InferenceModelExt, TractResult, TypedModel};

use crate::EngineError;
use crate::normal::{self, AxisNames};
use crate::open::DynamicGraph;
use crate::{check, message};

/// A model in tract's form, simplified but not yet optimised for tract's own kernels. Clones share the weights.
#[derive(Clone, Debug)]
pub struct Graph {
    /// The typed graph; for an open graph, with all open axes of one length.
    pub typed: TypedModel,
    /// The open form, if shapes can be inferred for concrete lengths only.
    pub open: Option<DynamicGraph>,
}

impl Graph {
    /// Imports a model. External weights, if there are any, lie in `folder`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the faulty part.
    pub(crate) fn of(proto: &ModelProto, folder: Option<&str>) -> Result<Self, EngineError> {
        check::check(proto, folder.map(Path::new))?;
        // the importer indexes and unwraps in places; a bad file must not end the process
        let typed = catch_unwind(AssertUnwindSafe(|| import(proto, folder)));
        let typed = typed.map_err(|payload| message::panicked(&*payload))?;
        let (typed, open) = typed.map_err(|e| message::explain(&format!("{e:#}"), proto))?;
        Ok(Self { typed, open })
    }
}

/// Shapes are inferred for named lengths if that is possible at all: as the file has them; then without what it says of tensors that
/// nodes make; then as if the inputs had their axes in common; at last for concrete lengths only.
fn import(proto: &ModelProto, folder: Option<&str>) -> TractResult<(TypedModel, Option<DynamicGraph>)> {
    let infer = |proto: &ModelProto| {
        let proto = tract_onnx::onnx().proto_model_for_read(&mut &*prost::Message::encode_to_vec(proto))?;
        let model = tract_onnx::onnx().parse(&proto, folder)?.model;
        let typed = model.clone().into_typed().and_then(TypedModel::into_decluttered);
        TractResult::Ok((model, typed))
    };
    if let (_, Ok(typed)) = infer(proto)? {
        return Ok((typed, None));
    }
    let mut proto = proto.clone();
    proto.graph.iter_mut().for_each(normal::forget_shapes);
    let (model, error) = match infer(&proto)? {
        (_, Ok(typed)) => return Ok((typed, None)),
        (model, Err(error)) => (model, error),
    };
    let is_shared = proto.graph.as_mut().is_some_and(|graph| normal::name_axes(graph, AxisNames::Shared));
    if is_shared && let Ok((_, Ok(typed))) = infer(&proto) {
        return Ok((typed, None));
    }
    DynamicGraph::new(model, format!("{error:#}")).map(|(typed, open)| (typed, Some(open))).ok_or(error)
}
