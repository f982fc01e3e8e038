//! Programs of the fixtures' plans: every node has kernels, their number, and memory ranges do not overlap.

use std::collections::BTreeSet;

use super::*;
use crate::gpu::args::{ArgField, BaseAddresses};
use crate::gpu::kernel;
use crate::gpu::route::{self, Transfer, TransferPlan};
use crate::tests::plans::{NOT_ON_GPUS, every, every_on_gpus, plans};
use lapwing_plan::plan::BatchSize;

fn precisions() -> [GpuPrecision; 4] {
    [GpuPrecision::Fp32, GpuPrecision::Tf32, GpuPrecision::Fp16, GpuPrecision::Int8(Vec::new())]
}

fn program(name: &str, precision: &GpuPrecision, size: BatchSize) -> (Plan, LoweredProgram) {
    let (_, plan) = plans(name);
    let mut prepared = PreparedPlan::new(&plan, precision, &LoweringTarget::ASSUMED).unwrap();
    let all = vec![true; plan.outputs.len()];
    let capacity = route::capacity(&plan, size);
    let program = route::program(&mut prepared, &plan, capacity, &all, &LoweringTarget::ASSUMED).unwrap();
    (plan, program)
}

fn launches(program: &LoweredProgram) -> Vec<&Launch> {
    program.steps.iter().filter_map(|step| if let Step::Launch(launch) = step { Some(launch) } else { None }).collect()
}

#[test]
fn every_node_of_every_fixture_has_kernels() {
    for name in every_on_gpus() {
        for precision in precisions() {
            for size in [BatchSize::uniform(1, 5), BatchSize::uniform(3, 40), BatchSize::uniform(17, 9)] {
                let (plan, program) = program(&name, &precision, size);
                let nodes: BTreeSet<usize> = program.steps.iter().map(Step::node).collect();
                assert_eq!(nodes.len(), plan.nodes.len(), "{name} {}", precision.name());
                assert!(nodes.iter().all(|at| *at < plan.nodes.len()));
                assert_eq!(program.layout.arena.overlap(&plan), None, "{name}");
                for launch in launches(&program) {
                    assert!(launch.shared as usize <= LoweringTarget::ASSUMED.shared_bytes, "{name}: {}", launch.kernel.name);
                    assert_eq!(launch.args.fields().iter().filter(|field| **field == ArgField::Tail).count(), 1);
                    assert!(launch.args.bytes(&BaseAddresses::default(), true).len() <= 4096);
                }
            }
        }
    }
}

/// Each kernel writes its own memory only: no other region begins inside the range that it writes.
#[test]
fn regions_hold_what_lies_in_them() {
    for name in every_on_gpus() {
        let (_, program) = program(&name, &GpuPrecision::Int8(Vec::new()), BatchSize::uniform(9, 3));
        let layout = &program.layout;
        for launch in launches(&program) {
            for field in launch.args.fields() {
                let ArgField::Pointer(Some(Address { region, offset })) = field else { continue };
                let end = match region {
                    Region::Arena => layout.arena_bytes(),
                    Region::Inputs => layout.input_bytes,
                    Region::Outputs => layout.output_bytes,
                    _ => continue,
                };
                assert!(*offset < end, "{name}: {} at {offset} of {end} in {region:?}", launch.kernel.name);
            }
        }
    }
}

#[test]
fn a_layer_is_seven_kernels_and_one_of_an_mlp_is_one() {
    for precision in [GpuPrecision::Fp32, GpuPrecision::Tf32, GpuPrecision::Fp16] {
        let count = |name: &str| program(name, &precision, BatchSize::uniform(2, 40)).1.steps.len();
        for kind in ["bert-post", "bert-pre"] {
            let (one, two) = (count(&format!("{kind}-1")), count(&format!("{kind}-2")));
            assert!(two - one <= 7, "{kind}: {one}, {two}");
        }
        for batch in [1, 8] {
            let (_, program) = program("mlp-3", &precision, BatchSize::uniform(batch, 1));
            let names: Vec<&str> = launches(&program).iter().map(|launch| launch.kernel.name).collect();
            assert_eq!(names.len(), 3, "{names:?}");
            assert!(names.iter().all(|name| name.starts_with("gemv")), "{names:?}");
            assert_eq!(TransferPlan::of(&program), TransferPlan { inputs: Transfer::Mapped, outputs: Transfer::Mapped });
            assert!(!program.has_header);
        }
    }
}

#[test]
fn inputs_that_many_blocks_read_are_copied() {
    let (_, mut program) = program("mlp-3", &GpuPrecision::Fp32, BatchSize::uniform(1, 1));
    assert_eq!(TransferPlan::of(&program).inputs, Transfer::Mapped);
    let Some(Step::Launch(first)) = program.steps.first_mut() else { panic!("no launch") };
    first.grid.0 = u32::try_from(route::MAPPED_BYTES / program.layout.input_bytes).unwrap();
    assert_eq!(TransferPlan::of(&program).inputs, Transfer::Mapped);
    let Some(Step::Launch(first)) = program.steps.first_mut() else { panic!("no launch") };
    first.grid.0 += 1;
    assert_eq!(TransferPlan::of(&program), TransferPlan { inputs: Transfer::Copied, outputs: Transfer::Mapped });
}

#[test]
fn only_what_is_asked_for_is_made() {
    let (_, plan) = plans("0001");
    let names: Vec<&str> = plan.outputs.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["hidden", "pooled"]);
    let mut prepared = PreparedPlan::new(&plan, &GpuPrecision::Fp32, &LoweringTarget::ASSUMED).unwrap();
    let capacity = Capacity::holding(BatchSize::uniform(2, 8));
    let mut count = |wanted: [bool; 2]| prepared.lower(&plan, capacity, &wanted, &LoweringTarget::ASSUMED).unwrap().steps.len();
    assert!(count([true, false]) < count([true, true]));
    assert_eq!(count([false, true]), count([true, true]));
    assert_eq!(count([false, false]), 0);
    // an intermediate result for another output stays on the device
    let bytes = |wanted: [bool; 2]| {
        let program = prepared.clone().lower(&plan, capacity, &wanted, &LoweringTarget::ASSUMED).unwrap();
        (program.layout.output_bytes, program.layout.unwanted_bytes)
    };
    let (both, hidden, pooled) = (bytes([true, true]), bytes([true, false]), bytes([false, true]));
    assert_eq!((both.0, both.1, hidden.1), (hidden.0 + pooled.0, 0, 0));
    assert!(pooled.1 == hidden.0 && pooled.0 < hidden.0, "{pooled:?} {hidden:?}");
}

#[test]
fn the_numbers_of_a_model_have_their_places_from_the_beginning() {
    for name in every_on_gpus() {
        for precision in precisions() {
            let (_, plan) = plans(&name);
            let mut prepared = PreparedPlan::new(&plan, &precision, &LoweringTarget::ASSUMED).unwrap();
            let bytes = prepared.weights.bytes();
            let all = vec![true; plan.outputs.len()];
            for size in [BatchSize::uniform(1, 1), BatchSize::uniform(5, 7), BatchSize::uniform(64, 64)] {
                prepared.lower(&plan, Capacity::holding(size), &all, &LoweringTarget::ASSUMED).unwrap();
            }
            assert_eq!(prepared.weights.bytes(), bytes, "{name}");
            let mut end = 0;
            let whole: Result<(), ()> = prepared.weights.write(&plan, |offset, form| {
                end = end.max(offset + form.len());
                Ok(())
            });
            assert!(whole.is_ok() && end <= bytes);
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused_by_its_node() {
    for (begin, op) in NOT_ON_GPUS {
        let names: Vec<String> = every().into_iter().filter(|name| name.starts_with(begin)).collect();
        assert!(!names.is_empty(), "{begin}");
        for (name, precision) in names.iter().flat_map(|name| precisions().map(|precision| (name, precision))) {
            let (_, plan) = plans(name);
            let refused = PreparedPlan::new(&plan, &precision, &LoweringTarget::ASSUMED).unwrap_err();
            assert_eq!(refused.operator, op, "{name}: {refused}");
            assert!(plan.nodes.iter().any(|node| node.name == refused.node && node.op.name() == op), "{name}: {refused}");
        }
    }
}

#[test]
fn biases_by_distance_are_added_by_a_kernel_that_takes_them() {
    let mut counts = [0; 2];
    for name in every_on_gpus() {
        let (plan, program) = program(&name, &GpuPrecision::Fp16, BatchSize::uniform(3, 40));
        for launch in launches(&program).into_iter().filter(|launch| launch.kernel.module == "attention_mma") {
            let Op::Attention { by_distance, .. } = &plan.nodes[launch.node].op else { panic!("{name}") };
            let is_with = by_distance.is_some();
            assert_eq!(launch.kernel.name, if is_with { "attention_f16_64" } else { "attention_f16_32" }, "{name}");
            assert_eq!(launch.shared, launch.kernel.shared + if is_with { 1536 } else { 0 }, "{name}");
            counts[usize::from(is_with)] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
}

#[test]
fn a_product_of_the_library_with_an_exact_gelu_is_activated_behind_it() {
    let (_, plan) = plans("bert-post-2");
    let target = LoweringTarget { has_cublaslt: true, ..LoweringTarget::ASSUMED };
    let mut prepared = PreparedPlan::new(&plan, &GpuPrecision::Fp16, &target).unwrap();
    let capacity = Capacity::holding(BatchSize::uniform(3, 40));
    let program = prepared.lower(&plan, capacity, &vec![true; plan.outputs.len()], &target).unwrap();
    let mut activated = 0;
    for step in &program.steps {
        let Step::Product(product) = step else { continue };
        let is_gelu = product.activation == Activation::Gelu;
        assert_eq!(product.then.as_ref().map(|launch| launch.kernel.name), is_gelu.then_some("copy_columns"));
        assert!(product.own.kernel.name.starts_with("gemm_f16"), "{}", product.own.kernel.name);
        activated += usize::from(is_gelu);
    }
    assert_eq!(activated, 2, "one in each layer");
}

#[test]
fn tiles_are_chosen_by_how_many_blocks_there_are() {
    let kernel = |rows, n| products::best(kernel::tiles(Kind::F16, false), rows, n, 132).kernel.name;
    assert_eq!(kernel(4096, 1536), "gemm_f16_128x128");
    assert_eq!(kernel(32, 384), "gemm_f16_32x64");
}
