//! How long a run's parts take: on the device by events, on the host by its clock. The device is looked at in two ways, since an
//! event between two kernels costs some time itself: once with events at the borders alone, and once with one behind every step.

use std::time::Duration;

use super::capture::{Bound, Marks, capture};
use super::choice::Chosen;
use super::{Executor, GpuError, State, Times};
use crate::clock::Stamp;
use crate::exec::Batch;
use crate::gpu::args::Control;
use crate::gpu::lower::Step;

/// What stands for the name of a kernel of cublasLt's.
pub const LIBRARY: &str = "cublaslt";

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The plan's node that it is of.
    pub node: usize,
    /// The kernel's name; [`LIBRARY`] where that is cublasLt's.
    pub kernel: &'static str,
    /// The median time from the event before it to the one behind it.
    pub time: Duration,
}

/// The parts of a run: medians of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// On the device, with events at the borders alone.
    pub times: Times,
    /// Writing the batch into staging memory.
    pub stage: Duration,
    /// Handing the graph over to the driver.
    pub launch: Duration,
    /// Each step of the program, with events in between.
    pub steps: Vec<Piece>,
    /// All steps, with events in between: by so much more than `times.kernels` do they cost.
    pub marked: Duration,
}

impl Executor {
    /// Looks at `runs` runs of a batch, at least one.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn pieces(&self, state: &mut State, batch: &Batch<'_>, wanted: &[bool], runs: usize) -> Result<Pieces, GpuError> {
        let size = batch.size(self.plan())?;
        let mut run = state.ready(self, size, wanted)?;
        let (program, chosen, route) = (run.sized.program.clone(), run.sized.chosen.clone(), run.sized.route);
        let bound = Bound { executor: self, program: &program, route, bases: run.held.bases(self, route), chosen: &chosen };
        let borders = Marks::new(self.device(), route)?;
        let every = Marks::with_steps(self.device(), route, program.steps.len())?;
        let plain = capture(&bound, run.held, None)?;
        let bordered = capture(&bound, run.held, Some(&borders))?;
        let marked = capture(&bound, run.held, Some(&every))?;
        let (mut stage, mut launch, mut times, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut steps = vec![Vec::new(); program.steps.len()];
        for _ in 0..runs.max(1) {
            let began = Stamp::now();
            run.stage(batch)?;
            stage.push(Duration::from_nanos(began.elapsed()));
            for graph in [&plain, &bordered, &marked] {
                run.held.control.set_flag(Control::FLAG, 0)?;
                let began = Stamp::now();
                graph.launch(&run.held.stream)?;
                if std::ptr::eq(graph, &plain) {
                    launch.push(Duration::from_nanos(began.elapsed()));
                }
                run.held.stream.wait()?;
            }
            times.push(borders.times()?);
            for (known, time) in steps.iter_mut().zip(every.steps()?) {
                known.push(time);
            }
            all.push(every.times()?.kernels);
            run.told()?;
        }
        let part = |of: fn(&Times) -> Duration| median(times.iter().map(of).collect());
        let piece = |(at, times): (usize, Vec<Duration>)| {
            let step = &program.steps[at];
            let kernel = match (chosen.get(at), step) {
                (Some(Chosen::Library(..)), _) => LIBRARY,
                (_, Step::Launch(launch)) => launch.kernel.name,
                (_, Step::Product(product)) => product.own.kernel.name,
            };
            Piece { node: step.node(), kernel, time: median(times) }
        };
        Ok(Pieces {
            times: Times {
                all: part(|times| times.all),
                to_device: part(|times| times.to_device),
                kernels: part(|times| times.kernels),
                to_host: part(|times| times.to_host),
            },
            stage: median(stage),
            launch: median(launch),
            steps: steps.into_iter().enumerate().map(piece).collect(),
            marked: median(all),
        })
    }
}

/// The one in the middle; nothing of none.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
