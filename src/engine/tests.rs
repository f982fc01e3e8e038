//! The engine against what numpy computed in float64, and its refusals.

use serde::Deserialize;

use super::{EngineError, Model};

const DIGITS: &[u8] = include_bytes!("../app/demo/digits.onnx");

#[derive(Deserialize)]
struct Golden {
    input: Vec<Vec<f32>>,
    logits: Vec<Vec<f32>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/digits.json")).unwrap()
}

#[test]
fn the_widths_are_the_models() {
    let model = Model::from_onnx(DIGITS).unwrap();
    assert_eq!((model.input_width(), model.output_width()), (64, 10));
}

#[test]
fn logits_equal_numpys_at_every_batch_size() {
    let model = Model::from_onnx(DIGITS).unwrap();
    let golden = golden();
    assert_eq!(golden.input.len(), 8);
    for rows in 1..=golden.input.len() {
        let got = model.forward(rows, &golden.input[..rows].concat()).unwrap();
        let want = golden.logits[..rows].concat();
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert!((got - want).abs() < 1e-4, "{rows} rows: {got} is not {want}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let model = Model::from_onnx(DIGITS).unwrap();
    let rows = golden().input;
    let many = model.forward(200, &rows.concat().repeat(25)).unwrap();
    let one = model.forward(1, &rows[0]).unwrap();
    for at in 0..25 {
        let same = &many[at * 80..at * 80 + 10];
        assert!(same.iter().zip(&one).all(|(a, b)| (a - b).abs() < 1e-4), "row {}", at * 8);
    }
}

#[test]
fn a_wrong_input_is_named_with_its_shape() {
    let model = Model::from_onnx(DIGITS).unwrap();
    let short = model.forward(2, &[0.0; 64]).unwrap_err();
    assert_eq!(short.to_string(), "x: expected 128 values for shape [2, 64], got 64");
    let none = model.forward(0, &[]).unwrap_err();
    assert!(matches!(none, EngineError::Input { rows: 0, .. }), "{none}");
}

#[test]
fn what_is_no_model_is_refused() {
    for bad in [&b""[..], b"not an onnx file", &DIGITS[..DIGITS.len() / 2]] {
        let error = Model::from_onnx(bad).unwrap_err();
        assert!(error.to_string().starts_with("model: "), "{error}");
    }
}
