//! A batch of calls fits its plan, or the error says what does not.

#![allow(clippy::unwrap_used, reason = "a test")]

use lapwing_onnx::shaped::ShapedGraph;
use lapwing_onnx::tensor::Tensor;
use lapwing_plan::exec::{CallBatch, RunError};
use lapwing_plan::lower::lower;
use lapwing_plan::plan::{BatchSize, ElementType, Plan};

fn plan() -> Plan {
    lower(&ShapedGraph::parse(include_bytes!("../../../tests/fixtures/plans/mlp-3.onnx"), None).unwrap()).unwrap()
}

/// A call of as many numbers; a row has 7.
fn call(numbers: usize) -> Vec<Tensor> {
    vec![Tensor::f32("in", &[numbers / 7, 7], &vec![0.5; numbers])]
}

fn size(offsets: &[usize], calls: &[Vec<Tensor>]) -> Result<BatchSize, RunError> {
    let calls: Vec<&[Tensor]> = calls.iter().map(Vec::as_slice).collect();
    CallBatch { offsets, calls: &calls }.size(&plan())
}

#[test]
fn the_rows_of_all_calls_make_the_batch() {
    assert_eq!(size(&[0, 1, 2, 3], &[call(14), call(7)]), Ok(BatchSize::uniform(3, 1)));
    assert_eq!(size(&[0, 1], &[call(7)]), Ok(BatchSize::uniform(1, 1)));
}

#[test]
fn what_does_not_fit_is_named() {
    let short = RunError::Input { input: "in".into(), expected: 21, kind: ElementType::F32, got: 14 };
    assert_eq!(size(&[0, 1, 2, 3], &[call(14)]), Err(short));
    // as many numbers as two rows have, and neither call has whole ones
    let torn = size(&[0, 1, 2], &[call(6), call(8)]).unwrap_err().to_string();
    assert_eq!(torn, "batch: in: a call has a part of a row of 7");
    let missing = size(&[0, 1], &[Vec::new()]).unwrap_err().to_string();
    assert_eq!(missing, "batch: has 0 inputs, the model 1");
    for (offsets, reason) in
        [(&[0][..], "has no sequences"), (&[1, 2], "has no sequences"), (&[0, 0], "has a sequence without tokens")]
    {
        assert_eq!(size(offsets, &[call(7)]).unwrap_err().to_string(), format!("batch: {reason}"));
    }
}
