//! Compares the descriptions of kernels in several places: the tables in the sources, the PTX, `kernel::all`, and the
//! checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use lapwing_engine::gpu::kernel::{self, Kernel};
use lapwing_engine::gpu::ptx;

use super::common::{built, is_real};

/// Modules that no plan uses: the peak measurements, and the tests of single primitives.
const NO_PLANS: [&str; 2] = ["peaks", "primitives"];

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/lapwing-engine/kernels"))
}

/// The names of files with this ending, without the files that all kernels include.
fn files(folder: &Path, ending: &str) -> BTreeSet<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let is_one = path.extension().is_some_and(|extension| extension == ending);
        is_one.then(|| path.file_stem().unwrap().to_str().unwrap().to_owned())
    };
    let names: BTreeSet<String> = fs::read_dir(folder).unwrap().filter_map(name).collect();
    names.into_iter().filter(|name| name != "prelude" && name != "args").collect()
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// Each kernel of a module, with the threads of its launch bounds.
fn entries(ptx: &str) -> BTreeMap<&str, u32> {
    let entry = |text| {
        let (name, rest): (&str, &str) = str::split_once(text, '(').unwrap();
        let (head, _) = rest.split_once('{').unwrap();
        let bounds =
            head.split_once(".maxntid ").unwrap_or_else(|| panic!("{name} has no launch bounds")).1.lines().next().unwrap();
        (name, bounds.split(", ").map(|axis| axis.trim().parse::<u32>().unwrap()).product())
    };
    ptx.split(".visible .entry ").skip(1).map(entry).collect()
}

fn of<'a>(module: &str) -> BTreeMap<&'a str, &'static Kernel> {
    kernel::all().filter(|kernel| kernel.module == module).map(|kernel| (kernel.name, kernel)).collect()
}

#[test]
fn the_binary_has_the_modules_of_its_kernels_and_no_other() {
    let modules: Vec<&str> = ptx::MODULES.iter().map(|(name, _)| *name).collect();
    let used: BTreeSet<&str> = kernel::all().map(|kernel| kernel.module).collect();
    let planned = |name: &&&str| !NO_PLANS.contains(*name);
    assert_eq!(modules.iter().filter(planned).copied().collect::<BTreeSet<_>>(), used);
    assert_eq!(modules.len(), modules.iter().collect::<BTreeSet<_>>().len(), "a module is listed twice");
    assert!(!modules.contains(&"primitives"), "only the checks use the primitives");
    let sources = files(folder(), "cu");
    assert_eq!(files(&folder().join("ptx"), "ptx"), sources);
    let planned: BTreeSet<String> = sources.into_iter().filter(|name| !NO_PLANS.contains(&name.as_str())).collect();
    assert_eq!(planned, used.iter().map(|name| (*name).to_owned()).collect());
    for (name, kept) in ptx::MODULES {
        assert!(*kept == text(&format!("ptx/{name}.ptx")), "{name}: built from other PTX");
    }
}

#[test]
fn every_kernel_of_a_module_is_known_with_its_threads() {
    let mut count = 0;
    for (module, text) in ptx::MODULES {
        if NO_PLANS.contains(module) {
            continue;
        }
        let known: BTreeMap<&str, u32> = of(module).into_iter().map(|(name, kernel)| (name, kernel.threads)).collect();
        assert_eq!(entries(text), known, "{module}");
        count += known.len();
    }
    assert_eq!(kernel::all().count(), count, "a kernel is listed twice, or is in no module");
}

/// Expands `a_{b,c}_d` to `a_b_d` and `a_c_d`.
fn spelled_out(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (among, after) = rest.split_once('}').unwrap();
    among.split(',').flat_map(|one| spelled_out(&format!("{before}{one}{after}"))).collect()
}

#[test]
fn the_tables_at_the_heads_of_sources_are_true() {
    let mut rows = BTreeSet::new();
    for module in files(folder(), "cu") {
        let (source, known) = (text(&format!("{module}.cu")), of(&module));
        let head: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//")).collect();
        for line in &head {
            let cells: Vec<&str> = line.split_whitespace().collect();
            let &[names, threads, shared, ..] = &cells[..] else { continue };
            let (Ok(threads), Ok(shared)) = (threads.parse(), shared.parse()) else { continue };
            for name in spelled_out(names) {
                let kernel = known.get(name.as_str()).unwrap_or_else(|| panic!("{module}.cu has a row for {name}"));
                assert_eq!((kernel.threads, kernel.shared), (threads, shared), "{module}.cu: {name}");
                rows.insert(name);
            }
        }
        // a table lists all kernels of its module
        let listed = known.keys().filter(|name| rows.contains(**name)).count();
        assert!(listed == 0 || listed == known.len(), "{module}.cu: its table has {listed} of {}", known.len());
        // and without a table, the text states the requirements of attention
        for kernel in known.values().filter(|kernel| kernel.module.starts_with("attention")) {
            let (threads, shared) = (format!("{} threads", kernel.threads), kernel.shared.to_string());
            let head = head.join(" ");
            assert!(head.contains(&threads) && head.contains(&shared), "{module}.cu: {}: {threads}, {shared} bytes", kernel.name);
        }
    }
    let products = kernel::all().filter(|kernel| kernel.module.starts_with("gem")).count();
    assert_eq!(rows.len(), products, "{rows:?}");
}

/// The kernels that the checks launch on the emulated device, from its trace: threads, and the least shared memory.
fn launched() -> BTreeMap<String, (u32, u32)> {
    let folder = built(&["fake", "check"]);
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut check = Command::new(folder.join("check"));
    check.arg("--cuda").arg(folder.join("libcuda.so.1")).env("LAPWING_FAKE_TRACE", trace.path());
    let output = check.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(trace.path()).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["launch", name, "grid", _, "x", _, "threads", threads, "shared", shared, ..] = words[..] {
            let (threads, shared): (u32, u32) = (threads.parse().unwrap(), shared.parse().unwrap());
            let least = found.entry(name.to_owned()).or_insert((threads, shared));
            assert_eq!(least.0, threads, "{name}");
            least.1 = least.1.min(shared);
        }
    }
    found
}

#[test]
fn every_kernel_is_launched_by_a_check_as_programs_launch_it() {
    if is_real() {
        return lapwing_testing::not_run("this machine's GPU is under test; tests/gpu.sh runs the checks on it");
    }
    let launched = launched();
    for kernel in kernel::all() {
        let (threads, shared) = launched.get(kernel.name).unwrap_or_else(|| panic!("no check launches {}", kernel.name));
        assert_eq!(*threads, kernel.threads, "{}", kernel.name);
        // a launch may request more than the kernel's own, and so may a check
        assert!(*shared >= kernel.shared, "{}: a check gives it {shared} bytes of {}", kernel.name, kernel.shared);
    }
    for module in NO_PLANS {
        for name in entries(&text(&format!("ptx/{module}.ptx"))).keys() {
            assert!(launched.contains_key(*name), "no check launches {name}");
        }
    }
}
