//! Calls that are made up to hold executors against one another: numbers that look random and are the same each time, ids that are in their
//! tables, masks of ones.

use bytes::{BufMut, BytesMut};
use half::{bf16, f16};

use super::call::CallLengths;
use super::executor::Executor;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec, put_text};
use lapwing_plan::plan::{Lookup, Op, Plan};

/// What the elements of a tensor may take, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// A call with open axes of these lengths; `None` if it would be too large.
pub(crate) fn call(executor: &dyn Executor, rows: usize, length: usize) -> Option<Vec<Tensor>> {
    drawn(executor, rows, length, 0)
}

/// The call that [`call`] makes, or with other draws others, whose numbers are an eighth as large each time.
pub(crate) fn drawn(executor: &dyn Executor, rows: usize, length: usize, draw: u32) -> Option<Vec<Tensor>> {
    let plan = executor.plan();
    // a past as long as the sequences, where there is one
    let has_past = plan.is_some_and(Plan::has_past);
    let longest = plan.and_then(Plan::longest).map(|longest| if has_past { (longest / 2).max(1) } else { longest });
    let length = longest.map_or(length, |longest| longest.min(length));
    let lengths = CallLengths { rows, length, past: length };
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ u64::from(draw));
    let smaller = 0.125_f64.powi(draw.cast_signed());
    let tensor = |(at, port): (usize, &TensorSpec)| {
        let open = |(axis, fixed): (usize, &Option<usize>)| fixed.unwrap_or_else(|| lengths.of_axis(plan, at, axis));
        let shape: Vec<usize> = port.shape.iter().enumerate().map(open).collect();
        let elements = shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length))?;
        elements.checked_mul(port.datatype.least_bytes()).filter(|bytes| *bytes <= MOST_BYTES)?;
        let is_mask = plan.map_or_else(|| port.name.contains("mask"), |plan| plan.mask() == Some(at));
        let in_row = (elements / shape.first().copied().unwrap_or(1).max(1)).max(1);
        let ids = plan.and_then(|plan| table_rows(plan, at)).unwrap_or(2);
        let mut data = BytesMut::with_capacity(elements * port.datatype.least_bytes());
        for element in 0..elements {
            // rows of several sizes: thresholds of trees and ranges of integers are not all near 1
            let scale = [1.0, 8.0, 60.0][element / in_row % 3] * smaller;
            append(&mut data, port.datatype, if is_mask { Fill::One } else { numbers.fill(scale, ids) });
        }
        Some(Tensor { name: port.name.clone(), datatype: port.datatype, shape, data: data.freeze() })
    };
    executor.inputs().iter().enumerate().map(tensor).collect()
}

/// The rows of the smallest table that an input's ids are looked up in.
fn table_rows(plan: &Plan, input: usize) -> Option<usize> {
    let port = plan.inputs.get(input)?;
    let tables = plan.nodes.iter().flat_map(|node| if let Op::Embed { tables, .. } = &node.op { &tables[..] } else { &[] });
    let own = tables.filter(|(_, lookup)| matches!(lookup, Lookup::Id(columns) if columns.value == port.value));
    own.map(|(table, _)| plan.weight(*table).rows).min()
}

/// What one element becomes.
enum Fill {
    One,
    /// A number, and a whole number that is an id.
    Drawn(f64, u64),
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn fill(&mut self, scale: f64, ids: usize) -> Fill {
        // SplitMix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let unit = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        Fill::Drawn((2.0 * unit - 1.0) * scale, mixed % (ids.max(1) as u64))
    }
}

fn append(data: &mut BytesMut, datatype: Datatype, fill: Fill) {
    let (number, whole) = match fill {
        Fill::One => (1.0, 1),
        Fill::Drawn(number, id) => (number, id),
    };
    match datatype {
        Datatype::Fp32 => data.put_f32_le(number as f32),
        Datatype::Fp64 => data.put_f64_le(number),
        Datatype::Bf16 => data.put_slice(&bf16::from_f64(number).to_le_bytes()),
        Datatype::Fp16 => data.put_slice(&f16::from_f64(number).to_le_bytes()),
        Datatype::Bool => data.put_u8(whole as u8 & 1),
        // bytes are pixels and the like, not ids
        Datatype::Uint8 | Datatype::Int8 => data.put_u8(if let Fill::One = fill { 1 } else { (number * 127.0) as i64 as u8 }),
        Datatype::Bytes => put_text(data, whole.to_string().as_bytes()),
        other => data.put_slice(&whole.to_le_bytes()[..other.least_bytes()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_of_their_type_and_in_range() {
        let mut numbers = Numbers(1);
        for datatype in Datatype::ALL.into_iter().filter(|datatype| datatype.bytes().is_some()) {
            let mut data = BytesMut::new();
            (0..200).for_each(|_| append(&mut data, datatype, numbers.fill(60.0, 5)));
            append(&mut data, datatype, Fill::One);
            assert_eq!(data.len(), 201 * datatype.least_bytes());
            let read = Tensor { name: String::new(), datatype, shape: vec![201], data: data.into() }.to_f64();
            let least = if matches!(datatype, Datatype::Fp16 | Datatype::Bf16) { 0.99 } else { 1.0 };
            assert!(read[200] >= least && read[200] <= 1.0, "{datatype:?} {}", read[200]);
            let most = match datatype {
                Datatype::Bool => 1.0,
                Datatype::Uint8 | Datatype::Int8 => 255.0 * 60.0,
                Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 => 60.0,
                _ => 4.0,
            };
            assert!(read.iter().all(|x| x.is_finite() && x.abs() <= most), "{datatype:?} {read:?}");
            assert!(read.iter().any(|x| *x != read[0]), "{datatype:?}");
        }
    }
}
