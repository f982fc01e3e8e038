//! A model's weights on a device: each in the form in which kernels read it, all in one buffer.

use std::collections::BTreeMap;

use half::f16;

use super::args::{Address, Region};
use super::layout::{Kind, stride};
use lapwing_plan::plan::{Plan, WeightId};

/// A weight in one of its stored forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightForm {
    /// The right operand of a product, `[n][k]`, with k padded with zeros to a multiple of 32.
    Product(WeightId, Kind),
    /// The same in single precision, rounded to the 10 fraction bits of tf32.
    Rounded(WeightId),
    /// The scale of each column of an 8-bit product.
    Scales(WeightId),
    /// A row, or a column of single elements.
    Row(WeightId),
    /// A lookup table.
    Table(WeightId, Kind),
    /// The encoded map program of the node with this index.
    Code(usize),
}

/// The weights that a plan needs, and the offset of each.
#[derive(Clone, Debug, Default)]
pub struct WeightLayout {
    layout: BTreeMap<WeightForm, usize>,
    codes: BTreeMap<usize, Vec<i32>>,
    bytes: usize,
}

impl WeightLayout {
    /// The address of a weight; assigned when it is first requested.
    pub fn place(&mut self, plan: &Plan, form: WeightForm) -> Address {
        let length = self.length(plan, form);
        let end = &mut self.bytes;
        let offset = *self.layout.entry(form).or_insert_with(|| {
            let offset = *end;
            *end += length.next_multiple_of(256);
            offset
        });
        Address::new(Region::Weights, offset)
    }

    /// The address of a node's encoded program, `code`.
    pub fn code(&mut self, plan: &Plan, node: usize, code: Vec<i32>) -> Address {
        self.codes.insert(node, code);
        self.place(plan, WeightForm::Code(node))
    }

    /// Size of the buffer in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The element type of a product's right operand; `None` for any other weight.
    #[must_use]
    pub fn product(&self, id: WeightId) -> Option<Kind> {
        if self.layout.contains_key(&WeightForm::Rounded(id)) {
            return Some(Kind::F32);
        }
        [Kind::F32, Kind::F16, Kind::S8].into_iter().find(|kind| self.layout.contains_key(&WeightForm::Product(id, *kind)))
    }

    /// The element type of a lookup table; `None` for any other weight.
    #[must_use]
    pub fn table(&self, id: WeightId) -> Option<Kind> {
        [Kind::F32, Kind::F16].into_iter().find(|kind| self.layout.contains_key(&WeightForm::Table(id, *kind)))
    }

    fn length(&self, plan: &Plan, form: WeightForm) -> usize {
        match form {
            WeightForm::Product(id, kind) => plan.weight(id).width * deep(plan.weight(id).rows) * kind.bytes(),
            WeightForm::Rounded(id) => plan.weight(id).width * deep(plan.weight(id).rows) * 4,
            WeightForm::Scales(id) => 4 * plan.weight(id).width,
            WeightForm::Row(id) => 4 * plan.weight(id).data.len(),
            WeightForm::Table(id, kind) => plan.weight(id).rows * stride(plan.weight(id).width) * kind.bytes(),
            WeightForm::Code(node) => 4 * self.codes.get(&node).map_or(0, Vec::len),
        }
    }

    /// Calls `put` with the offset and bytes of each weight.
    ///
    /// # Errors
    ///
    /// The first error that `put` returns.
    pub fn write<E>(&self, plan: &Plan, mut put: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
        self.layout.iter().try_for_each(|(form, offset)| put(*offset, &self.form(plan, *form)))
    }

    fn form(&self, plan: &Plan, form: WeightForm) -> Vec<u8> {
        let floats = |values: &mut dyn Iterator<Item = f32>| values.flat_map(f32::to_le_bytes).collect();
        match form {
            WeightForm::Product(id, Kind::S8) => columns(plan, id)
                .flat_map(|(_, column)| {
                    let scale = scale(&column);
                    column.into_iter().map(move |x| (x / scale).round_ties_even().clamp(-127.0, 127.0) as i8 as u8)
                })
                .collect(),
            WeightForm::Product(id, Kind::F16) => {
                columns(plan, id).flat_map(|(_, column)| column).flat_map(|x| f16::from_f32(x).to_le_bytes()).collect()
            }
            WeightForm::Product(id, _) => floats(&mut columns(plan, id).flat_map(|(_, column)| column)),
            WeightForm::Rounded(id) => floats(&mut columns(plan, id).flat_map(|(_, column)| column).map(tf32)),
            WeightForm::Scales(id) => floats(&mut columns(plan, id).map(|(_, column)| scale(&column))),
            WeightForm::Row(id) => floats(&mut plan.weight(id).data.iter().copied()),
            WeightForm::Table(id, kind) => table(plan, id, kind),
            WeightForm::Code(node) => self.codes.get(&node).into_iter().flatten().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }
}

/// The stored depth of a product.
#[must_use]
pub const fn deep(k: usize) -> usize {
    k.next_multiple_of(32)
}

/// The columns of a product's right operand, padded.
fn columns(plan: &Plan, id: WeightId) -> impl Iterator<Item = (usize, Vec<f32>)> {
    let weight = plan.weight(id);
    (0..weight.width).map(move |column| {
        let mut values: Vec<f32> = (0..weight.rows).map(|row| weight.data[row * weight.width + column]).collect();
        values.resize(deep(weight.rows), 0.0);
        (column, values)
    })
}

/// The scale of an 8-bit column; 1 if the column is all zeros.
fn scale(column: &[f32]) -> f32 {
    let most = column.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    if most > 0.0 { most / 127.0 } else { 1.0 }
}

/// Rounds to 10 fraction bits, to nearest, ties away from zero: cvt.rna.tf32.f32.
fn tf32(x: f32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + 0x1000) & !0x1fff) } else { x }
}

fn table(plan: &Plan, id: WeightId, kind: Kind) -> Vec<u8> {
    let weight = plan.weight(id);
    let stride = stride(weight.width);
    let mut bytes = Vec::with_capacity(weight.rows * stride * kind.bytes());
    for row in weight.data.chunks_exact(weight.width) {
        for column in 0..stride {
            let x = row.get(column).copied().unwrap_or(0.0);
            match kind {
                Kind::F16 => bytes.extend(f16::from_f32(x).to_le_bytes()),
                _ => bytes.extend(x.to_le_bytes()),
            }
        }
    }
    bytes
}
