//! Synthetic inputs that resemble real ones; equal seeds give equal inputs.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::shapes::Shape;
use lapwing_onnx::tensor::{Datatype, Tensor, TensorSpec};
use lapwing_plan::plan::Plan;

/// The inputs of a call: normally distributed floats, ids below the smallest table that looks them up, masks of ones, other integers
/// 0 or 1. In a model without a plan, ids and masks are unknown.
pub(crate) fn inputs(ports: &[TensorSpec], plan: Option<&Plan>, shape: Shape, seed: u64) -> Vec<Tensor> {
    let mut random = StdRng::seed_from_u64(seed);
    let mask = plan.and_then(Plan::mask);
    let mut tensors = Vec::with_capacity(ports.len());
    for (at, port) in ports.iter().enumerate() {
        let open = |axis| if axis == 0 { shape.batch } else { shape.length.unwrap_or(1) };
        let lengths: Vec<usize> = port.shape.iter().enumerate().map(|(axis, fixed)| fixed.unwrap_or(open(axis))).collect();
        let below = if mask == Some(at) { None } else { Some(plan.and_then(|plan| plan.ids_below(at)).unwrap_or(2)) };
        let mut data = Vec::with_capacity(lengths.iter().product::<usize>() * port.datatype.least_bytes());
        for _ in 0..lengths.iter().product() {
            element(&mut data, port.datatype, below, &mut random);
        }
        tensors.push(Tensor { name: port.name.clone(), datatype: port.datatype, shape: lengths, data: data.into() });
    }
    tensors
}

/// One element; an integer without an upper limit is 1, a string is empty.
fn element(data: &mut Vec<u8>, datatype: Datatype, below: Option<usize>, random: &mut StdRng) {
    match datatype {
        Datatype::Fp32 => data.extend((normal(random) as f32).to_le_bytes()),
        Datatype::Fp64 => data.extend(normal(random).to_le_bytes()),
        // one; there is no half precision to draw from
        Datatype::Fp16 => data.extend([0, 0x3c]),
        Datatype::Bf16 => data.extend([0x80, 0x3f]),
        Datatype::Bytes => data.extend([0; 4]),
        whole => {
            let width = whole.least_bytes();
            // bytes hold no more than 127
            let most = if width == 1 { 2 } else { below.unwrap_or(2) };
            let id = below.map_or(1, |_| random.random_range(0..most.max(1) as u64));
            data.extend_from_slice(&id.to_le_bytes()[..width]);
        }
    }
}

/// A normally distributed number.
fn normal(random: &mut StdRng) -> f64 {
    // not zero, whose logarithm is no number
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(datatype: Datatype, shape: &[Option<usize>]) -> TensorSpec {
        TensorSpec { name: "x".into(), datatype, shape: shape.to_vec() }
    }

    #[test]
    fn floats_are_normal_and_the_same_again() {
        let shape = Shape { batch: 100, length: Some(7) };
        let draw = |seed| inputs(&[port(Datatype::Fp32, &[None, None, Some(30)])], None, shape, seed);
        let one = draw(1);
        assert_eq!(one[0].shape, [100, 7, 30]);
        assert_eq!(one, draw(1));
        assert_ne!(one, draw(2));
        let floats = one[0].to_f32();
        let mean = floats.iter().sum::<f32>() / floats.len() as f32;
        let square = floats.iter().map(|x| x * x).sum::<f32>() / floats.len() as f32;
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.05, "{mean} {square}");
    }

    #[test]
    fn whole_numbers_of_unknown_meaning_are_noughts_and_ones() {
        let shape = Shape { batch: 64, length: None };
        for datatype in [Datatype::Int64, Datatype::Int32, Datatype::Bool, Datatype::Uint8] {
            let tensor = &inputs(&[port(datatype, &[None])], None, shape, 3)[0];
            let elements: Vec<&[u8]> = tensor.data.chunks(datatype.least_bytes()).collect();
            assert_eq!(elements.len(), 64);
            assert!(elements.iter().all(|e| e[0] < 2 && e[1..].iter().all(|byte| *byte == 0)));
            assert!(elements.iter().any(|e| e[0] == 1) && elements.iter().any(|e| e[0] == 0));
        }
    }
}
