//! Measures the phases and steps of a run: on the device by events, on the host by its clock. Device times are measured
//! twice, because an event between two kernels takes time itself: once with events at the phase boundaries only, and
//! once with an event after every step.

use std::time::Duration;

use super::capture::{BoundProgram, DeviceTimes, TimingEvents, capture};
use super::loaded::{CudaExecutor, GpuError};
use super::selection::SelectedKernel;
use super::stage::HostInputs;
use super::state::CudaState;
use crate::clock::Stamp;
use crate::gpu::args::Control;
use crate::gpu::lower::Step;
use lapwing_plan::exec::Batch;

/// The name used for cublasLt kernels.
pub const LIBRARY: &str = "cublaslt";

/// The time of one step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTiming {
    /// The index of the step's node in the plan.
    pub node: usize,
    /// The kernel's name; [`LIBRARY`] for cublasLt.
    pub kernel: &'static str,
    /// The median time between the events before and after it.
    pub time: Duration,
}

/// The times of a run: medians of several runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTimings {
    /// Device times, with events at the phase boundaries only.
    pub times: DeviceTimes,
    /// Time to write the batch to staging memory.
    pub stage: Duration,
    /// Time to launch the graph.
    pub launch: Duration,
    /// The time of each step, with an event after each.
    pub steps: Vec<StepTiming>,
    /// All steps with events in between; the excess over `times.kernels` is the cost of the events.
    pub marked: Duration,
}

impl CudaExecutor {
    /// Measures `runs` runs of a batch, at least one.
    ///
    /// # Errors
    ///
    /// Like [`Self::run`].
    pub fn time_steps(
        &self,
        state: &mut CudaState,
        batch: &Batch<'_>,
        wanted: &[bool],
        runs: usize,
    ) -> Result<RunTimings, GpuError> {
        let size = batch.size(self.plan())?;
        let mut run = state.prepare(self, size, wanted)?;
        let (program, selected, route) = (run.sized.program.clone(), run.sized.selected.clone(), run.sized.route);
        let bound =
            BoundProgram { executor: self, program: &program, route, bases: run.memory.bases(self, route), selected: &selected };
        let borders = TimingEvents::new(self.device(), route)?;
        let every = TimingEvents::with_steps(self.device(), route, program.steps.len())?;
        let plain = capture(&bound, run.memory, None)?;
        let bordered = capture(&bound, run.memory, Some(&borders))?;
        let marked = capture(&bound, run.memory, Some(&every))?;
        let (mut stage, mut launch, mut times, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut steps = vec![Vec::new(); program.steps.len()];
        for _ in 0..runs.max(1) {
            let began = Stamp::now();
            run.stage(HostInputs::Batch(batch))?;
            stage.push(Duration::from_nanos(began.elapsed()));
            for graph in [&plain, &bordered, &marked] {
                run.memory.control.set_flag(Control::FLAG, 0)?;
                let began = Stamp::now();
                graph.launch(&run.memory.stream)?;
                if std::ptr::eq(graph, &plain) {
                    launch.push(Duration::from_nanos(began.elapsed()));
                }
                run.memory.stream.wait()?;
            }
            times.push(borders.times()?);
            for (known, time) in steps.iter_mut().zip(every.steps()?) {
                known.push(time);
            }
            all.push(every.times()?.kernels);
            run.check_fault()?;
        }
        let part = |of: fn(&DeviceTimes) -> Duration| median(times.iter().map(of).collect());
        let piece = |(at, times): (usize, Vec<Duration>)| {
            let step = &program.steps[at];
            let kernel = match (selected.get(at), step) {
                (Some(SelectedKernel::Library(..)), _) => LIBRARY,
                (_, Step::Launch(launch)) => launch.kernel.name,
                (_, Step::Product(product)) => product.own.kernel.name,
            };
            StepTiming { node: step.node(), kernel, time: median(times) }
        };
        Ok(RunTimings {
            times: DeviceTimes {
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

/// The median; zero if there are none.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
