//! The tensors of one run, from stage to stage.

use std::collections::HashMap;
use std::sync::Arc;

use ::rten::{NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueView};

use super::images::image::Image;
use super::images::run::Images;
use super::images::steps::{Step, Work};
use super::stage::LoadedStage;
use super::words;
use crate::model::image_memory::ImageMemory;
use lapwing_onnx::EngineError;

/// Tensors by place: those of rten and of the caller, and images. An image that rten reads, or the caller, is in ONNX's order of axes there.
pub(crate) struct Table<'a> {
    pub(crate) values: HashMap<usize, ValueOrView<'a>>,
    images: Images,
    memory: &'a mut ImageMemory,
}

impl<'a> Table<'a> {
    /// A table of so many places.
    pub(crate) fn new(places: usize, memory: &'a mut ImageMemory) -> Self {
        let images = Images { of: (0..places).map(|_| None).collect() };
        Self { values: HashMap::new(), images, memory }
    }

    /// Runs a stage, without outputs that nobody wants.
    ///
    /// # Errors
    ///
    /// [`EngineError::Run`] names the node that fails.
    pub(crate) fn run(
        &mut self,
        stage: &LoadedStage,
        threads: &Arc<ThreadPool>,
        unwanted: &[usize],
        operators: &HashMap<String, String>,
    ) -> Result<(), EngineError> {
        if let Some(model) = &stage.model {
            let made: Vec<(NodeId, usize)> = stage.makes.iter().filter(|(_, place)| !unwanted.contains(place)).copied().collect();
            let ids: Vec<NodeId> = made.iter().map(|(id, _)| *id).collect();
            let options = RunOptions::default().with_thread_pool(Some(Arc::clone(threads)));
            let values = model.run(self.reads(stage)?, &ids, Some(options));
            let values = values.map_err(|error| words::run(&error, operators))?;
            self.values.extend(made.into_iter().map(|(_, place)| place).zip(values.into_iter().map(ValueOrView::Value)));
        }
        stage.frees.iter().for_each(|place| self.free(*place));
        for step in &stage.steps {
            self.step(step).map_err(|reason| EngineError::Run { reason: words::step(&step.node, &reason, operators) })?;
        }
        Ok(())
    }

    /// What rten reads: what no later stage reads, it may overwrite.
    fn reads(&mut self, stage: &LoadedStage) -> Result<Vec<(NodeId, ValueOrView<'_>)>, EngineError> {
        for (_, place) in &stage.reads {
            if let (false, Some(Some(image))) = (self.values.contains_key(place), self.images.of.get(*place)) {
                let tensor = image.tensor().map_err(|reason| EngineError::Run { reason })?;
                self.values.insert(*place, Value::from(tensor).into());
            }
        }
        let last: Vec<_> = stage.frees.iter().filter_map(|place| Some((*place, self.values.remove(place)?))).collect();
        let mut last: HashMap<usize, ValueOrView<'_>> = last.into_iter().collect();
        let mut reads = Vec::with_capacity(stage.reads.len());
        for (id, place) in &stage.reads {
            let value = last.remove(place).or_else(|| Some(ValueOrView::View(self.values.get(place)?.as_view())));
            let missing = || EngineError::Run { reason: "a tensor that a stage reads was not made".to_owned() };
            reads.push((*id, value.ok_or_else(missing)?));
        }
        Ok(reads)
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        for place in step.reads() {
            if let (Some(None), Some(value)) = (self.images.of.get(place), self.values.get(&place)) {
                let ValueView::FloatTensor(tensor) = value.as_view() else {
                    return Err(format!("its input is of {}, and not of numbers of single precision", value.as_view().dtype()));
                };
                self.images.of[place] = Some(Image::of(&tensor, step.rank, &mut self.memory.buffers)?);
            }
        }
        match (&step.work, &step.makes[..]) {
            (Work::ChannelsLast { x }, [place]) => {
                let image = self.images.of.get_mut(*x);
                let image =
                    if step.frees.contains(x) { image.and_then(Option::take) } else { image.and_then(|image| image.clone()) };
                let image = image.ok_or_else(|| "an image that it reads was not made".to_owned())?;
                self.values.insert(*place, Value::from(image.channels_last()).into());
            }
            _ => self.images.run(step, self.memory)?,
        }
        step.frees.iter().for_each(|place| self.free(*place));
        Ok(())
    }

    fn free(&mut self, place: usize) {
        self.values.remove(&place);
        self.images.free(place, &mut self.memory.buffers);
    }

    /// Takes an output.
    pub(crate) fn output(&mut self, place: usize) -> Option<Value> {
        if let Some(ValueOrView::Value(value)) = self.values.remove(&place) {
            return Some(value);
        }
        let tensor = self.images.of.get(place)?.as_ref()?.tensor().ok()?;
        self.free(place);
        Some(tensor.into())
    }
}
