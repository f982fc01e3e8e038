//! The threads of executors that have their own run on the processors that the engine may use.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lapwing_engine::clock::Stamp;
use lapwing_engine::cpu::threads::{Threads, usable};
use lapwing_model::{Backend, Model, ModelOptions, Workspace};

/// The names of this process's threads and the processors that each may use, by their numbers.
fn tasks() -> BTreeMap<String, (String, String)> {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        // a thread that has ended since has none
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let id = path.file_name().unwrap().to_string_lossy().into_owned();
        Some((id, (field("Name:"), field("Cpus_allowed_list:"))))
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(of).collect()
}

/// The threads that a run by an executor starts, and the processors of each, as soon as they are `as_expected`, or as they are after
/// 10 s: a thread gives itself its name and its processors, and may not have come so far when the run ends.
fn started(options: &ModelOptions, as_expected: impl Fn(&[(String, String)]) -> bool) -> Vec<(String, String)> {
    let before = tasks();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/plans/mlp-3.onnx");
    let model = Model::read(&path, options).unwrap();
    let call = model.synthetic_call(4, 1);
    let mut workspace = Workspace::default();
    model.run(&mut workspace, &[&call]).unwrap();
    let begun = Stamp::now();
    loop {
        let started = tasks().into_iter().filter(|(id, _)| !before.contains_key(id)).map(|(_, task)| task);
        let mut started: Vec<_> = started.collect();
        started.sort();
        if as_expected(&started) || begun.elapsed() > 10_000_000_000 {
            return started;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn options(backend: Backend, count: usize, cpus: &[usize]) -> ModelOptions {
    let mut options = ModelOptions { backend, ..ModelOptions::default() };
    options.plan.threads = Arc::new(Threads::new(count, cpus).unwrap());
    options
}

/// The last processor, and the first: the order is not that of the system.
fn two_cpus() -> Option<[usize; 2]> {
    match usable()[..] {
        [first, .., last] => Some([last, first]),
        _ => {
            lapwing_testing::not_run("this machine has one processor");
            None
        }
    }
}

#[test]
fn rten_runs_on_the_processors_of_the_engine() {
    lapwing_testing::alone(lapwing_testing::test_name!(), || {
        let Some(cpus) = two_cpus() else { return };
        // the pool that packs weights has no more threads than processors, and that of runs has two
        let [last, first] = cpus.map(|cpu| cpu.to_string());
        let is_held = |(name, cpus): &(String, String)| match name.as_str() {
            "rten-0" => *cpus == last,
            "rten-1" => *cpus == first,
            name => name.starts_with("rten-"),
        };
        let is_right = |two: &[(String, String)]| two.len() >= 3 && two.iter().all(is_held);
        let two = started(&options(Backend::Rten, 2, &cpus), is_right);
        assert!(is_right(&two), "{two:?}");
        // a thread beyond the list uses all of it
        let is = |count: usize, cpus: &[usize], processors: &[&str]| {
            let name = |number: usize| format!("rten-{number}");
            let expected: Vec<_> =
                processors.iter().enumerate().map(|(number, cpus)| (name(number), (*cpus).to_owned())).collect();
            assert_eq!(started(&options(Backend::Rten, count, cpus), |threads| threads == expected), expected);
        };
        is(2, &cpus[..1], &[&last, &last]);
        is(1, &cpus, &[&last]);
        // none is held without a list
        let all = tasks().into_values().find(|(name, _)| !name.starts_with("rten-") && !name.starts_with("engine-")).unwrap().1;
        is(2, &[], &[&all, &all]);
    });
}

#[cfg(feature = "onnxruntime")]
#[test]
fn onnxruntime_runs_on_the_processors_of_the_engine() {
    lapwing_testing::alone(lapwing_testing::test_name!(), || {
        let (Some(cpus), Some(runtime)) = (two_cpus(), lapwing_testing::onnxruntime()) else { return };
        let runtime = lapwing_engine::onnxruntime::Runtime::find(Some(&runtime)).unwrap();
        let is = |count: usize, expected: &[&str]| {
            let options = ModelOptions { onnxruntime: Some(Ok(runtime.clone())), ..options(Backend::OnnxRuntime, count, &cpus) };
            let is_expected = |threads: &[(String, String)]| threads.iter().map(|(_, cpus)| cpus).eq(expected);
            let threads = started(&options, is_expected);
            assert!(is_expected(&threads), "{threads:?} is not {expected:?}");
        };
        // the first thread is the caller's
        let [_, first] = cpus.map(|cpu| cpu.to_string());
        let pair = if cpus[0] == cpus[1] + 1 { format!("{first}-{}", cpus[0]) } else { format!("{first},{}", cpus[0]) };
        is(2, &[&first]);
        is(3, &[&first, &pair]);
    });
}
