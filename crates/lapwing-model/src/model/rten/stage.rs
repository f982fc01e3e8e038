//! The parts of a model, loaded.

use std::collections::HashMap;

use ::rten::{LoadErrorKind, Model, NodeId};
use prost::Message;

use super::images::divide::Stage;
use super::images::steps::Step;
use super::load::load;
use super::prepare::prepare;
use super::words;
use lapwing_onnx::{EngineError, OnnxFile};

/// A part of a model: what rten computes, then what the engine's kernels make of it.
#[derive(Debug)]
pub(crate) struct LoadedStage {
    pub(crate) model: Option<Model>,
    /// What rten reads and makes, and the places of that in the table of a run.
    pub(crate) reads: Vec<(NodeId, usize)>,
    pub(crate) makes: Vec<(NodeId, usize)>,
    pub(crate) steps: Vec<Step>,
    /// What no later stage reads.
    pub(crate) frees: Vec<usize>,
}

impl LoadedStage {
    /// Loads the part of a stage of `file`, with its files of weights. A note says if that is not optimised.
    ///
    /// # Errors
    ///
    /// [`EngineError::Model`] names the node that rten does not take, and why.
    pub(crate) fn load(
        stage: Stage,
        file: &OnnxFile,
        external: Vec<(String, Vec<u8>)>,
        operators: &HashMap<String, String>,
        notes: &mut Vec<String>,
    ) -> Result<Self, EngineError> {
        let Stage { part, reads, makes, steps, frees } = stage;
        let Some(part) = part else { return Ok(Self { model: None, reads: Vec::new(), makes: Vec::new(), steps, frees }) };
        let model = match load(part.encode_to_vec(), external, true)? {
            Ok(model) => model,
            // its optimiser fails where two outputs are the same tensor, and the like
            Err(error) if error.kind() == LoadErrorKind::OptimizeError => {
                let external = prepare(file)?.external;
                let model = load(part.encode_to_vec(), external, false)?.map_err(|error| words::load(&error, operators))?;
                notes.push(words::short(&format!("rten runs it without optimisations: {error}")));
                model
            }
            Err(error) => return Err(words::load(&error, operators)),
        };
        let find = |what: &str, (name, place): (String, usize)| {
            let missing = || EngineError::part(format!("{what} {name}"), "rten does not have it");
            Ok((model.find_node(&name).ok_or_else(missing)?, place))
        };
        let reads = reads.into_iter().map(|read| find("input", read)).collect::<Result<_, EngineError>>()?;
        let makes = makes.into_iter().map(|made| find("output", made)).collect::<Result<_, EngineError>>()?;
        Ok(Self { model: Some(model), reads, makes, steps, frees })
    }
}
