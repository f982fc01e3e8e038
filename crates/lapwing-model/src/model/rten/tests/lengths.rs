//! Recurrences whose rows have lengths: states by hand, and what ONNX Runtime computes.

use super::{FLOAT, INT32, answered, file, node, small};
use lapwing_onnx::messages::NodeProto;
use lapwing_onnx::tensor::Tensor;
use lapwing_testing::onnx::{f32s, int, port, word};

#[test]
fn states_end_where_a_row_ends() {
    // with weights of zero the update gate is a half: each step halves the state that was given
    let read = |direction: &str, output: usize| {
        let attributes = vec![int("hidden_size", 1), int("linear_before_reset", 1), word("direction", direction)];
        let gru = NodeProto {
            output: if output == 0 { vec!["y".into()] } else { vec![String::new(), "y".into()] },
            ..node("GRU", &["x", "w", "r", "", "l", "h"], attributes)
        };
        let constants = vec![
            f32s("w", &[1, 3, 1], &[0.0; 3]),
            f32s("r", &[1, 3, 1], &[0.0; 3]),
            small("l", INT32, &[2], &[3, 1]),
            f32s("h", &[1, 2, 1], &[8.0, 8.0]),
        ];
        answered(
            &file(17, gru, vec![port("x", FLOAT, &[3, 2, 1])], constants, FLOAT),
            vec![Tensor::f32("x", &[3, 2, 1], &[1.0; 6])],
        )
    };
    let forward = read("forward", 0);
    assert_eq!((forward.shape.clone(), forward.to_f32()), (vec![3, 1, 2, 1], vec![4.0, 4.0, 2.0, 0.0, 1.0, 0.0]));
    assert_eq!(read("reverse", 0).to_f32(), [1.0, 4.0, 2.0, 0.0, 4.0, 0.0]);
    for direction in ["forward", "reverse"] {
        let last = read(direction, 1);
        assert_eq!((last.shape.clone(), last.to_f32()), (vec![1, 2, 1], vec![1.0, 4.0]));
    }
}

#[cfg(feature = "onnxruntime")]
#[test]
fn states_are_those_of_onnxruntime() {
    use crate::choice::Backend;
    use crate::model::{Model, ModelOptions, Verification};
    use lapwing_engine::onnxruntime::Runtime;

    const STEPS: usize = 5;
    const ROWS: usize = 4;
    const COLUMNS: usize = 3;
    const HIDDEN: usize = 2;
    let Some(folder) = lapwing_testing::onnxruntime() else { return };
    let runtime = Runtime::find(Some(&folder)).unwrap();
    let options =
        ModelOptions { backend: Backend::Rten, onnxruntime: Some(Ok(runtime)), verify: true, ..ModelOptions::default() };
    let numbers = |name: &str, dims: [usize; 3], by: f32| {
        let count = dims.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|at| (at as f32 * by).sin() * 0.7).collect();
        f32s(name, &dims.map(|length| length as i64), &values)
    };
    for opset in [11, 17] {
        for (kind, gates) in [("LSTM", 4), ("GRU", 3)] {
            for (direction, directions) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
                for (output, lengths) in [(0, [5, 2, 1, 4]), (1, [3, 2, 1, 5]), (0, [2, 2, 1, 1])] {
                    let mut attributes = vec![int("hidden_size", HIDDEN as i64), word("direction", direction)];
                    if kind == "GRU" {
                        attributes.push(int("linear_before_reset", 1));
                    }
                    let recurrent = NodeProto {
                        output: if output == 0 { vec!["y".into()] } else { vec![String::new(), "y".into()] },
                        ..node(kind, &["x", "w", "r", "b", "l", "h"], attributes)
                    };
                    let constants = vec![
                        numbers("w", [directions, gates * HIDDEN, COLUMNS], 1.3),
                        numbers("r", [directions, gates * HIDDEN, HIDDEN], 0.9),
                        f32s("b", &[directions as i64, (2 * gates * HIDDEN) as i64], &vec![0.1; directions * 2 * gates * HIDDEN]),
                        small("l", INT32, &[ROWS as i64], &lengths),
                        numbers("h", [directions, ROWS, HIDDEN], 2.1),
                    ];
                    let x = vec![port("x", FLOAT, &[STEPS, ROWS, COLUMNS].map(|length| length as i64))];
                    let model = Model::parse(&file(opset, recurrent, x, constants, FLOAT), &options);
                    let verification = model.map(|model| model.verification().clone()).map_err(|error| error.to_string());
                    let case = format!("{opset} {kind} {direction} {output} {lengths:?}");
                    assert_eq!(verification, Ok(Verification::Agrees { rows: vec![1] }), "{case}");
                }
            }
        }
    }
}
