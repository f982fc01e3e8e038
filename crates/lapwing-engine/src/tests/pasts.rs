//! Decoders with a cache, as transformers 5 exports them: that a past is the same as the tokens before. That their results are those of ONNX
//! Runtime, for pasts of 0, 1 and 17 tokens, is in [`super::plans`].

#![allow(clippy::unwrap_used, reason = "tests")]

use super::plans::{TOLERANCE, every, plans, run_with_past};
use crate::cpu::{CpuExecutor, CpuOptions, CpuState};
use lapwing_plan::exec::Batch;
use lapwing_plan::plan::{PlanPort, Rows};

/// A sequence has the same results whatever is in its cache: everything at once, or the last tokens after a past; alone, or in a batch of
/// sequences of other lengths and pasts.
#[test]
fn a_past_is_the_tokens_before() {
    let names: Vec<String> = every().into_iter().filter(|name| name.ends_with("-past-0")).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let (_, plan) = plans(&name);
        let executor = CpuExecutor::new(plan.clone(), CpuOptions::default()).unwrap();
        let mut state = CpuState::default();
        let value = |port: &PlanPort| plan.value(port.value);
        // `new` tokens from `from` on, after a cache of all before
        let inputs = |from: usize, new: usize, seed: usize, caches: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let mut caches = caches.iter();
            let input = |port: &PlanPort| match (value(port).rows, port.name.as_str()) {
                (Rows::Past, _) => caches.next().cloned().unwrap_or_default(),
                (_, "attention_mask") => vec![1.0; from + new],
                (_, "position_ids") => (from..from + new).map(|at| at as f64).collect(),
                _ => (from..from + new).map(|at| ((at * 7 + seed) % 37 + 2) as f64).collect(),
            };
            plan.inputs.iter().map(input).collect()
        };
        let lengths = [9, 30, 14];
        let whole: Vec<Vec<Vec<f64>>> = (lengths.iter().enumerate())
            .map(|(seed, length)| run_with_past(&executor, &mut state, &[*length], &[0], &inputs(0, *length, seed, &[])).unwrap())
            .collect();
        for new in [1, 4, 8] {
            let (mut pasts, mut batch, mut alone) = (Vec::new(), vec![Vec::new(); plan.inputs.len()], Vec::new());
            for (seed, length) in lengths.iter().enumerate() {
                let past = length - new;
                let before = run_with_past(&executor, &mut state, &[past], &[0], &inputs(0, past, seed, &[])).unwrap();
                let given = inputs(past, new, seed, &before[1..]);
                let got = run_with_past(&executor, &mut state, &[new], &[past], &given).unwrap();
                let width = value(&plan.outputs[0]).width;
                let logits = &whole[seed][0][past * width..];
                let pairs =
                    got[0].iter().zip(logits).chain(got[1..].iter().zip(&whole[seed][1..]).flat_map(|(a, b)| a.iter().zip(b)));
                for (got, want) in pairs {
                    assert!((got - want).abs() <= TOLERANCE * (1.0 + want.abs()), "{name} {past}+{new}: {got}, not {want}");
                }
                assert!(got[1].len() == whole[seed][1].len() && got[0].len() == new * width, "{name} {past}+{new}");
                pasts.push(past);
                batch.iter_mut().zip(&given).for_each(|(all, one)| all.extend(one));
                alone.push(got);
            }
            let together = run_with_past(&executor, &mut state, &[new; 3], &pasts, &batch).unwrap();
            for (at, together) in together.iter().enumerate() {
                let alone: Vec<f64> = alone.iter().flat_map(|outputs| outputs[at].clone()).collect();
                assert_eq!(together.len(), alone.len());
                for (together, alone) in together.iter().zip(alone) {
                    assert!((together - alone).abs() <= TOLERANCE * (1.0 + alone.abs()), "{name}: {together} {alone}");
                }
            }
        }
    }
}

#[test]
fn pasts_that_do_not_fit_are_errors() {
    let name = "transformers-5-cache-llama-sdpa-script-past-0";
    let (_, plan) = plans(name);
    let executor = CpuExecutor::new(plan, CpuOptions::default()).unwrap();
    let numbers = |count: usize| vec![1.0; count];
    // ids, a mask, positions, keys and values of 2 heads of 4 columns
    let error = |past: usize, mask: usize, keys: usize| {
        let inputs = [numbers(3), numbers(mask), numbers(3), numbers(keys * 8), numbers(keys * 8)];
        run_with_past(&executor, &mut CpuState::default(), &[3], &[past], &inputs).map_err(|error| error.to_string())
    };
    assert!(error(5, 8, 5).is_ok() && error(0, 3, 0).is_ok());
    assert_eq!(error(5, 7, 5).unwrap_err(), "attention_mask: expected 8 elements of I64, got 7");
    assert_eq!(error(5, 8, 4).unwrap_err(), "past_key_values.0.key: expected 40 elements of F32, got 32");
    let inputs: Vec<Vec<f32>> = Vec::new();
    let batch = |past: &'static [usize]| Batch { offsets: &[0, 3], past, inputs: &[] };
    let fails = |past| executor.run(&mut CpuState::default(), &batch(past), &mut inputs.clone()).unwrap_err().to_string();
    for past in [&[][..], &[0], &[1, 2], &[0, 3, 2]] {
        assert_eq!(fails(past), "batch: has a sequence without a past, or one that ends before it begins", "{past:?}");
    }
}
