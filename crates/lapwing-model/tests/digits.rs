//! A classifier that scikit-learn trained, on rows that it was not trained on: the engine's plan sees in them what scikit-learn does.

#![allow(clippy::unwrap_used, reason = "a test")]

use lapwing_model::{Model, ModelOptions, Workspace};
use lapwing_onnx::tensor::Tensor;
use serde::Deserialize;

const MODEL: &[u8] = include_bytes!("../../../tests/fixtures/digits/digits.onnx");
const ROWS: &str = include_str!("../../../tests/fixtures/digits/digits.csv");
const ABOUT: &str = include_str!("../../../tests/fixtures/digits/digits.json");
const WIDTH: usize = 64;

/// The scaling that the model was trained under: `(pixel - mean) / scale`, pixel by pixel.
#[derive(Deserialize)]
struct Scaling {
    mean: Vec<f32>,
    scale: Vec<f32>,
}

#[test]
fn the_model_predicts_what_scikit_learns_does() {
    let model = Model::parse(MODEL, &ModelOptions::default()).unwrap();
    assert_eq!((model.executor().name(), model.unsupported()), ("plan", None));
    let scaling: Scaling = serde_json::from_str(ABOUT).unwrap();
    let (mut truth, mut input) = (Vec::new(), Vec::new());
    for line in ROWS.lines().skip(1) {
        let numbers: Vec<i64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        let [entity, label, prediction, pixels @ ..] = &numbers[..] else { panic!("{line}") };
        assert_eq!(pixels.len(), WIDTH);
        assert!(pixels.iter().all(|pixel| (0..=16).contains(pixel)));
        truth.push((*entity, *label, *prediction));
        let scaled = pixels.iter().zip(&scaling.mean).zip(&scaling.scale);
        input.extend(scaled.map(|((pixel, mean), scale)| (*pixel as f32 - mean) / scale));
    }
    assert!(truth.len() >= 300);
    let inputs = [Tensor::f32("x", &[truth.len(), WIDTH], &input)];
    let logits = model.run(&mut Workspace::default(), &[&inputs]).unwrap().outputs[0][0].to_f32();
    let mut right = 0;
    for ((entity, label, prediction), logits) in truth.iter().zip(logits.chunks_exact(10)) {
        let best = (0..10).max_by(|a, b| logits[*a as usize].total_cmp(&logits[*b as usize])).unwrap();
        assert_eq!(best, *prediction, "entity {entity}");
        right += usize::from(best == *label);
    }
    let accuracy = right as f64 / truth.len() as f64;
    assert!(accuracy >= 0.95, "{accuracy}");
}
