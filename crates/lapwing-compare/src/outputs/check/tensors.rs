//! Tensors against tensors, paired by name.

use super::super::comparison::{DifferenceDetail, DifferenceKind, FieldComparison, NumberComparison};
use super::super::config::TensorRule;
use super::super::decode::DecodedTensor;
use super::super::decode::tensor::TensorData;
use super::super::rules::Rules;
use super::Judging;
use super::numbers::{Allowed, Magnitude};
use super::ranking::{RowSums, greatest, least};
use super::text::{EditBudget, compare_texts, is_agreed};

/// Compares the tensors of two answers. A stream may give a name several times: the first is compared with the first.
pub(crate) fn compare_tensors(
    primary: &[DecodedTensor],
    candidate: &[DecodedTensor],
    judging: &Judging<'_>,
    budget: &mut EditBudget,
) -> Vec<FieldComparison> {
    let rules = judging.rules;
    let mut is_taken = vec![false; candidate.len()];
    let mut fields = Vec::new();
    for tensor in primary {
        let name = rules.names.get(&tensor.name).unwrap_or(&tensor.name);
        let mut field = FieldComparison::new(tensor.name.clone());
        match (0..candidate.len()).find(|at| !is_taken[*at] && candidate[*at].name == *name) {
            Some(at) => {
                is_taken[at] = true;
                compare(tensor, &candidate[at], judging, budget, &mut field);
            }
            None => field.differs(DifferenceKind::Structure, || one_side(type_of(tensor), "no such tensor")),
        }
        fields.push(field);
    }
    for (tensor, _) in candidate.iter().zip(&is_taken).filter(|(_, is_taken)| !**is_taken) {
        let mut field = FieldComparison::new(tensor.name.clone());
        field.differs(DifferenceKind::Structure, || one_side("no such tensor", type_of(tensor)));
        fields.push(field);
    }
    fields
}

fn one_side(primary: impl Into<String>, candidate: impl Into<String>) -> DifferenceDetail {
    DifferenceDetail { at: String::new(), primary: primary.into(), candidate: candidate.into() }
}

fn type_of(tensor: &DecodedTensor) -> String {
    format!("{} {:?}", tensor.element.name(), tensor.shape)
}

fn compare(p: &DecodedTensor, c: &DecodedTensor, judging: &Judging<'_>, budget: &mut EditBudget, field: &mut FieldComparison) {
    let rules = judging.rules;
    let is_one_kind = || judging.by_value && p.element.is_same_kind(c.element);
    if p.element != c.element && !is_one_kind() {
        field.differs(DifferenceKind::Datatype, || one_side(p.element.name(), c.element.name()));
    }
    let same_elements = || judging.by_value && long_axes(p).eq(long_axes(c));
    if p.shape != c.shape && !same_elements() {
        return field.differs(DifferenceKind::Shape, || one_side(format!("{:?}", p.shape), format!("{:?}", c.shape)));
    }
    match (&p.data, &c.data) {
        (TensorData::Numbers(..), TensorData::Numbers(..)) => {
            let (numbers, agrees) = compare_numbers(p, c, judging);
            if !agrees {
                field.kinds.insert(DifferenceKind::Value);
            }
            field.numbers = Some(Box::new(numbers));
        }
        (TensorData::Texts(p_texts), TensorData::Texts(c_texts)) => {
            for (index, (a, b)) in p_texts.iter().zip(c_texts).enumerate().filter(|(_, (a, b))| a != b) {
                let found = compare_texts(a, b, budget);
                if !is_agreed(&found, rules) {
                    field.differs(DifferenceKind::Text, || DifferenceDetail {
                        at: p.position(index),
                        primary: format!("{} bytes", a.len()),
                        candidate: format!("{} bytes", b.len()),
                    });
                }
                if field.text.is_none_or(|other| found.similarity < other.similarity) {
                    field.text = Some(found);
                }
            }
        }
        // the datatypes differ, which was said
        _ => {}
    }
}

/// The axes of a tensor that are not of length 1.
fn long_axes(tensor: &DecodedTensor) -> impl Iterator<Item = &u64> {
    tensor.shape.iter().filter(|length| **length != 1)
}

/// Compares numeric tensors of one shape. Returns what was measured, and whether they agree by the rule.
fn compare_numbers(p: &DecodedTensor, c: &DecodedTensor, judging: &Judging<'_>) -> (NumberComparison, bool) {
    let rules = judging.rules;
    let mut magnitude = Magnitude::default();
    (0..p.len()).filter_map(|index| p.number(index)).for_each(|number| magnitude.add(number.as_f64()));
    let mean = magnitude.mean();
    let allowed = Allowed::new(&rules.tolerance, judging.scales.of(&p.name, mean));
    let mut numbers = NumberComparison { mean, ..NumberComparison::default() };
    let (axis, row_elements) = (p.last_axis(), p.row_elements());
    let mut last_row_outside = None;
    let (mut sums, mut agrees) = (RowSums::default(), true);
    let mut row_is_outside = false;
    for index in 0..p.len() {
        let (Some(a), Some(b)) = (p.number(index), c.number(index)) else { break };
        let row = index / row_elements;
        let is_outside = numbers.add(a, b, &allowed, |_| (row as u64, p.position(index)));
        if is_outside && last_row_outside != Some(row) {
            numbers.rows_outside += 1;
            last_row_outside = Some(row);
        }
        row_is_outside |= is_outside;
        if axis > 1 {
            sums.add(a.as_f64(), b.as_f64());
            if (index + 1) % axis == 0 {
                agrees &= end_row(&mut numbers, std::mem::take(&mut sums), std::mem::take(&mut row_is_outside), rules);
                rank(&mut numbers, (p, c), index + 1 - axis..index + 1, rules.top_k);
            }
        }
    }
    numbers.ulps = ulps(p, c);
    let agrees = match rules.tensors {
        TensorRule::TopK if numbers.ranked > 0 => numbers.top_k_changed == 0,
        TensorRule::Cosine | TensorRule::Divergence if axis > 1 => agrees,
        _ => numbers.outside == 0,
    };
    (numbers, agrees)
}

/// Ends a row of the last axis. Returns whether it agrees by the rules of cosine and divergence.
fn end_row(numbers: &mut NumberComparison, sums: RowSums, is_outside: bool, rules: &Rules) -> bool {
    let (cosine, divergence) = (sums.cosine(), sums.divergence());
    numbers.cosine = Some(numbers.cosine.map_or(cosine, |other| least(other, cosine)));
    if let Some(divergence) = divergence {
        numbers.divergence = Some(numbers.divergence.map_or(divergence, |other| other.max(divergence)));
    }
    match rules.tensors {
        TensorRule::Cosine => cosine >= rules.cosine,
        TensorRule::Divergence => divergence.map_or(!is_outside, |divergence| divergence <= rules.divergence),
        TensorRule::Tolerance | TensorRule::TopK => true,
    }
}

/// Compares the greatest elements of a row.
fn rank(numbers: &mut NumberComparison, (p, c): (&DecodedTensor, &DecodedTensor), row: std::ops::Range<usize>, k: usize) {
    let of = |tensor: &DecodedTensor| {
        let mut top = greatest(row.clone().map(|index| tensor.number(index).map_or(f64::NAN, |n| n.as_f64())), k);
        top.sort_unstable();
        top
    };
    numbers.ranked += 1;
    numbers.top_k_changed += u64::from(of(p) != of(c));
}

/// The greatest distance in units in the last place, of finite floats of one type.
fn ulps(p: &DecodedTensor, c: &DecodedTensor) -> Option<u64> {
    let (TensorData::Numbers(element, a), TensorData::Numbers(other, b)) = (&p.data, &c.data) else { return None };
    if element != other || !element.is_float() {
        return None;
    }
    let finite = |index: usize| {
        let both = element.read(a, index).as_f64().is_finite() && element.read(b, index).as_f64().is_finite();
        both.then(|| element.ordinal(a, index).abs_diff(element.ordinal(b, index)))
    };
    Some((0..p.len()).filter_map(finite).max().unwrap_or(0))
}
