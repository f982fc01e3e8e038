//! Embeddings against embeddings: the angle between the vectors of each input.

use super::super::comparison::{DifferenceDetail, DifferenceKind, FieldComparison, NumberComparison};
use super::super::decode::{Embeddings, Number};
use super::Judging;
use super::numbers::{Allowed, Magnitude};
use super::ranking::{RowSums, least};

/// The name of the one field.
const FIELD: &str = "embedding";

/// Compares vectors with one another, in order. They agree if each pair has at least the configured cosine similarity, and lengths that
/// differ by no more than vectors of one length and that similarity: by √(2 (1 − cosine)), relative.
pub(crate) fn compare_embeddings(primary: &Embeddings, candidate: &Embeddings, judging: &Judging<'_>) -> FieldComparison {
    let rules = judging.rules;
    let mut field = FieldComparison::new(FIELD);
    let (p, c) = (&primary.0, &candidate.0);
    let detail = |at: String, primary: String, candidate: String| DifferenceDetail { at, primary, candidate };
    if p.len() != c.len() {
        let count = |vectors: &[Vec<f64>]| format!("{} vectors", vectors.len());
        field.differs(DifferenceKind::Shape, || detail(String::new(), count(p), count(c)));
    }
    let mut magnitude = Magnitude::default();
    p.iter().flatten().for_each(|number| magnitude.add(*number));
    let mean = magnitude.mean();
    let allowed = Allowed::new(&rules.tolerance, judging.scales.of(FIELD, mean));
    let mut numbers = NumberComparison { mean, ..NumberComparison::default() };
    let off_length = (2.0 * (1.0 - rules.cosine)).sqrt();
    for (row, (p, c)) in p.iter().zip(c).enumerate() {
        let at = |index: usize| format!("[{row}, {index}]");
        if p.len() != c.len() {
            let size = |vector: &[f64]| format!("{} dimensions", vector.len());
            field.differs(DifferenceKind::Shape, || detail(format!("[{row}]"), size(p), size(c)));
            continue;
        }
        let (mut sums, mut is_outside) = (RowSums::default(), false);
        for (index, (a, b)) in p.iter().zip(c).enumerate() {
            sums.add(*a, *b);
            is_outside |= numbers.add(Number::Float(*a), Number::Float(*b), &allowed, |_| (row as u64, at(index)));
        }
        numbers.rows_outside += u64::from(is_outside);
        let cosine = sums.cosine();
        numbers.cosine = Some(numbers.cosine.map_or(cosine, |other| least(other, cosine)));
        let (length, distance) = (sums.length_ratio(), sums.distance());
        numbers.distance = Some(numbers.distance.map_or(distance, |other| other.max(distance)));
        if cosine.is_nan() || cosine < rules.cosine {
            field.differs(DifferenceKind::Value, || detail(format!("[{row}]"), "cosine 1".into(), format!("cosine {cosine:.6}")));
        } else if length.is_nan() || (length - 1.0).abs() > off_length {
            field.differs(DifferenceKind::Value, || detail(format!("[{row}]"), "length 1".into(), format!("length {length:.6}")));
        }
    }
    field.numbers = Some(Box::new(numbers));
    field
}
