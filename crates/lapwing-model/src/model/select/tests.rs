//! What is chosen where ONNX Runtime is there too.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::model::batch::BatchResult;
use crate::model::executor::Workspace;
use lapwing_engine::onnxruntime::Runtime;
use lapwing_engine::placement::Placement;
use lapwing_onnx::tensor::{Tensor, TensorSpec};

/// Another executor with a pause before each run.
#[derive(Debug)]
struct Slow(Box<dyn Executor>);

impl Executor for Slow {
    fn name(&self) -> ExecutorName {
        self.0.name()
    }

    fn inputs(&self) -> &[TensorSpec] {
        self.0.inputs()
    }

    fn outputs(&self) -> &[TensorSpec] {
        self.0.outputs()
    }

    fn placement(&self) -> Arc<Placement> {
        self.0.placement()
    }

    fn plan(&self) -> Option<&Plan> {
        self.0.plan()
    }

    fn run(&self, workspace: &mut Workspace, calls: &[&[Tensor]], wanted: &[bool]) -> Result<BatchResult, EngineError> {
        std::thread::sleep(Duration::from_millis(20));
        self.0.run(workspace, calls, wanted)
    }
}

#[test]
fn onnxruntime_runs_what_takes_another_longer() {
    let Some(folder) = lapwing_testing::onnxruntime() else { return };
    let runtime = Runtime::find(Some(&folder)).unwrap();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = OnnxFile::read(&root.join("tests/fixtures/plans/mlp-3.onnx")).unwrap();
    let of = |backend| ModelOptions { backend, onnxruntime: Some(Ok(runtime.clone())), ..ModelOptions::default() };
    let chosen = |backend| {
        let chosen = select(Some(&file), || file.graph(), &of(backend)).unwrap();
        assert_eq!((chosen.executor.name(), &chosen.measured.calls[..]), (ExecutorName::Plan, &[][..]));
        Selected { executor: Box::new(Slow(chosen.executor)), ..chosen }
    };
    let moved = faster(chosen(Backend::Auto), Some(&file), &of(Backend::Auto));
    assert_eq!(moved.executor.name(), ExecutorName::OnnxRuntime);
    let [NotUsed { executor: ExecutorName::Plan, reason }] = &moved.not_used[..] else { panic!("{:?}", moved.not_used) };
    assert!(reason.starts_with("it takes ") && reason.contains(" of ONNX Runtime's time (1 row: "), "{reason}");
    assert_eq!(moved.measured.calls.iter().map(|call| call.rows).collect::<Vec<_>>(), [1, 16]);
    // an executor that was named stays, and its time is known
    let named = faster(chosen(Backend::Plan), Some(&file), &of(Backend::Plan));
    assert_eq!((named.executor.name(), named.measured.calls.len()), (ExecutorName::Plan, 2));
    assert!(named.measured.calls.iter().all(|call| call.executor_ns >= 20_000_000), "{:?}", named.measured);
}
