//! What the demo embeds: the classifier, its normalisation, and real rows that it was not trained on.
//!
//! All of it is written by `examples/train_digits.py`. Pixels are raw, 0..=16, until [`Normaliser::apply`].

use std::io;

use serde::Deserialize;

/// Values per row.
pub(super) const WIDTH: usize = 64;

/// The ONNX model: `x [N,64]` float32, normalised, to `logits [N,10]`.
pub(super) const MODEL: &[u8] = include_bytes!("digits.onnx");

const ROWS: &str = include_str!("digits.csv");
const ABOUT: &str = include_str!("digits.json");

/// One held-out row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Its index in scikit-learn's data set.
    pub entity_id: i64,
    /// The digit that it shows.
    pub label: i64,
    /// The digit that scikit-learn's own model sees in it.
    #[cfg_attr(not(test), allow(dead_code, reason = "the tests compare with it"))]
    pub prediction: i64,
    /// The pixels as they stand in the table, comma-separated.
    pub pixels: &'static str,
}

/// Reads the embedded rows; a few hundred.
pub(super) fn rows() -> io::Result<Vec<Row>> {
    ROWS.lines().skip(1).enumerate().map(|(i, line)| row(line).ok_or_else(|| unreadable("digits.csv", i + 2, "no row"))).collect()
}

fn row(line: &'static str) -> Option<Row> {
    let mut fields = line.splitn(4, ',');
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (entity_id, label, prediction) = (number()?, number()?, number()?);
    let pixels = fields.next()?;
    parse_pixels(pixels, &mut Vec::with_capacity(WIDTH))?;
    Some(Row { entity_id, label, prediction, pixels })
}

/// Appends one row's 64 pixels to `out`; `None` (with `out` perhaps longer) if there are not 64 numbers.
pub(super) fn parse_pixels(text: &str, out: &mut Vec<f32>) -> Option<()> {
    let before = out.len();
    for field in text.split(',') {
        out.push(field.parse().ok()?);
    }
    (out.len() - before == WIDTH).then_some(())
}

/// The scaling that the model was trained under: `(pixel - mean) / scale`, pixel by pixel.
#[derive(Debug, Deserialize)]
pub(super) struct Normaliser {
    mean: Vec<f32>,
    scale: Vec<f32>,
}

impl Normaliser {
    /// Reads the embedded constants.
    pub(super) fn load() -> io::Result<Self> {
        let loaded: Self = serde_json::from_str(ABOUT)?;
        let fits = loaded.mean.len() == WIDTH && loaded.scale.len() == WIDTH;
        if fits { Ok(loaded) } else { Err(unreadable("digits.json", 1, "expected 64 means and 64 scales")) }
    }

    /// Normalises rows laid end to end, in place.
    pub(super) fn apply(&self, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(WIDTH) {
            for ((value, mean), scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
                *value = (*value - mean) / scale;
            }
        }
    }
}

fn unreadable(file: &str, line: usize, reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file}:{line}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_engine::Model;
    use lapwing_engine::model::{ModelOptions, Workspace};
    use lapwing_engine::tensor::Tensor;

    #[test]
    fn the_embedded_model_predicts_what_scikit_learns_does() {
        let model = Model::parse(MODEL, &ModelOptions::default()).unwrap();
        assert_eq!((model.executor(), model.unsupported()), ("plan", None));
        let normaliser = Normaliser::load().unwrap();
        let rows = rows().unwrap();
        assert!(rows.len() >= 300);
        let mut input = Vec::new();
        for row in &rows {
            parse_pixels(row.pixels, &mut input).unwrap();
        }
        assert!(input.iter().all(|p| (0.0..=16.0).contains(p)));
        normaliser.apply(&mut input);
        let inputs = [Tensor::f32("x", &[rows.len(), WIDTH], &input)];
        let logits = model.run(&mut Workspace::default(), &[&inputs]).unwrap().outputs[0][0].to_f32();
        let mut right = 0;
        for (row, logits) in rows.iter().zip(logits.chunks_exact(10)) {
            let best = (0..10).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            assert_eq!(best as i64, row.prediction, "entity {}", row.entity_id);
            right += usize::from(best as i64 == row.label);
        }
        let accuracy = right as f64 / rows.len() as f64;
        assert!(accuracy >= 0.95, "{accuracy}");
    }

    #[test]
    fn a_row_of_another_width_is_refused() {
        assert_eq!(parse_pixels("1,2,3", &mut Vec::new()), None);
        assert_eq!(parse_pixels(&["x"; 64].join(","), &mut Vec::new()), None);
    }
}
