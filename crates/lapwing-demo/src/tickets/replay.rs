//! The model's answers for the tickets that a scenario asks for: computed once, before the first request, so that in a scenario the
//! model takes the time that the script says, however fast the machine is. Memory: 64 bytes for each ticket.

use std::io;

use lapwing_model::served::Served;
use lapwing_model::service::{Answer, Call, Servable, Stages};
use lapwing_onnx::tensor::Tensor;
use rustc_hash::FxHashMap;
use tokio::runtime::Builder;

use super::corpus::CLASSES;

/// Logits by the number of their ticket.
#[derive(Debug)]
pub(crate) struct Replay {
    logits: FxHashMap<i64, [f32; CLASSES]>,
    /// An answer for one row, for all that is not its rows.
    template: Answer,
}

impl Replay {
    /// Asks `model` for each of `ids`, alone; `inputs` are those of one ticket. Blocks meanwhile, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If there are no tickets, or the model does not answer.
    pub(crate) fn learn(model: &Served, ids: &[i64], inputs: impl Fn(i64) -> io::Result<Vec<Tensor>> + Sync) -> io::Result<Self> {
        let learning = || -> io::Result<Self> {
            let runtime = Builder::new_current_thread().build()?;
            let (mut logits, mut template) = (FxHashMap::default(), None);
            for id in ids {
                let call = Call { inputs: inputs(*id)?, outputs: Vec::new(), deadline: None };
                let answer = runtime.block_on(model.infer(call)).map_err(|error| io::Error::other(error.to_string()))?;
                let row = answer.outputs.first().map(Tensor::to_f32).unwrap_or_default();
                let row = <[f32; CLASSES]>::try_from(&*row).map_err(|_| io::Error::other("the model's answer is not one row"))?;
                logits.insert(*id, row);
                template.get_or_insert(answer);
            }
            let template = template.ok_or_else(|| io::Error::other("there are no tickets"))?;
            Ok(Self { logits, template: Answer { stages: Stages::default(), ..template } })
        };
        std::thread::scope(|scope| {
            scope.spawn(learning).join().unwrap_or_else(|_| Err(io::Error::other("the thread that asks the model panicked")))
        })
    }

    /// The model's answer for these tickets, which took no time; `None` if one of them is not known.
    pub(crate) fn answer(&self, ids: &[i64]) -> Option<Answer> {
        let rows: Option<Vec<f32>> = ids
            .iter()
            .map(|id| self.logits.get(id))
            .collect::<Option<Vec<_>>>()
            .map(|rows| rows.into_iter().flatten().copied().collect());
        let outputs = vec![Tensor::f32("logits", &[ids.len(), CLASSES], &rows?)];
        Some(Answer { outputs, ..self.template.clone() })
    }
}
