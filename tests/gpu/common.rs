//! Shared helpers: the device, the fixtures' plans, synthetic inputs, and the CPU's results.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use lapwing_engine::cpu;
use lapwing_engine::gpu::device::{CudaDevice, Driver};
use lapwing_onnx::shaped::ShapedGraph;
use lapwing_plan::exec::{Batch, Input};
use lapwing_plan::plan::{ElementType, Lookup, Op, Plan, Rows};
use lapwing_plan::{fuse, lower};

/// Whether to test the machine's own GPU.
pub(crate) fn is_real() -> bool {
    std::env::var_os("LAPWING_TEST_CUDA").is_some()
}

/// The folder of the emulated device's driver; built when it is first needed.
pub(crate) fn fake() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| match std::env::var_os("LAPWING_FAKES") {
        Some(folder) => folder.into(),
        None => built(&["fake"]),
    })
}

/// Builds these targets of tests/gpu/Makefile, and the emulated device's cublasLt; returns their folder.
pub(crate) fn built(targets: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu");
    std::fs::create_dir_all(&folder).unwrap();
    // each test case is a process of its own, and the first one builds for all
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu");
    for (sources, targets) in [(&sources, targets), (&sources.join("fake-cublaslt"), &[])] {
        let mut make = Command::new("make");
        make.arg("-s").arg("-j2").arg("-C").arg(sources).arg(format!("BUILD={}", folder.display())).args(targets);
        let made = make.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    folder
}

/// The driver, including where to look for cublasLt.
pub(crate) fn libraries() -> Driver {
    if is_real() { Driver::find(None).unwrap() } else { Driver::find(Some(fake())).unwrap() }
}

/// The device under test.
pub(crate) fn device() -> Arc<CudaDevice> {
    static DEVICE: OnceLock<Arc<CudaDevice>> = OnceLock::new();
    let open = || {
        let device = CudaDevice::open(&libraries(), 0).unwrap();
        assert_eq!(device.is_emulated(), !is_real());
        device
    };
    DEVICE.get_or_init(open).clone()
}

/// How the names begin of fixtures whose plans need what no kernel does.
const NOT_ON_GPUS: [&str; 2] = ["transformers-5-cache", "transformers-4-cache"];

/// The names of the fixtures that have a plan and kernels for it.
pub(crate) fn fixtures() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans");
    let name =
        |entry: std::io::Result<std::fs::DirEntry>| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.to_owned());
    let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().filter_map(name).collect();
    names.retain(|name| !NOT_ON_GPUS.iter().any(|begin| name.starts_with(begin)));
    names.sort();
    assert!(names.len() >= 18, "{names:?}");
    names
}

/// A fixture's plan.
pub(crate) fn plan(name: &str) -> Plan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plans").join(format!("{name}.onnx"));
    let mut plan = lower::lower(&ShapedGraph::read(&path).unwrap()).unwrap();
    fuse::fuse(&mut plan);
    plan
}

/// A deterministic pseudo-random generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    /// Between −1 and 1.
    pub(crate) fn number(&mut self) -> f32 {
        (self.next() % 20_001) as f32 / 10_000.0 - 1.0
    }
}

/// A batch that owns its input data.
pub(crate) struct OwnedBatch {
    pub(crate) offsets: Vec<usize>,
    columns: Vec<Column>,
}

enum Column {
    F32(Vec<f32>),
    I64(Vec<i64>),
    I32(Vec<i32>),
    Bool(Vec<bool>),
}

impl OwnedBatch {
    /// A batch of sequences of these lengths, with valid ids and masks that exclude the last token of every sequence.
    pub(crate) fn new(plan: &Plan, lengths: &[usize], random: &mut Random) -> Self {
        let mut offsets = vec![0];
        lengths.iter().for_each(|length| offsets.push(offsets.last().unwrap() + length));
        let tokens = *offsets.last().unwrap();
        let mask = plan.mask();
        let column = |at: usize| {
            let value = plan.value(plan.inputs[at].value);
            let count = value.width * if value.rows == Rows::Token { tokens } else { lengths.len() };
            let below = plan.ids_below(at).map_or(2, |below| below as u64);
            let counts: Vec<u64> = if mask == Some(at) {
                let is_last = |token: &usize| offsets.contains(&(token + 1)) && !offsets.contains(token);
                (0..count).map(|token| u64::from(!is_last(&token))).collect()
            } else {
                (0..count).map(|_| random.next() % below).collect()
            };
            match value.kind {
                ElementType::F32 if mask == Some(at) => Column::F32(counts.iter().map(|x| *x as f32).collect()),
                ElementType::F32 => Column::F32((0..count).map(|_| random.number()).collect()),
                ElementType::I64 => Column::I64(counts.iter().map(|x| *x as i64).collect()),
                ElementType::I32 => Column::I32(counts.iter().map(|x| *x as i32).collect()),
                ElementType::Bool => Column::Bool(counts.iter().map(|x| *x != 0).collect()),
            }
        };
        let columns = (0..plan.inputs.len()).map(column).collect();
        Self { offsets, columns }
    }

    /// Masks the first `count` tokens of each sequence out too.
    pub(crate) fn mask_first(&mut self, plan: &Plan, count: usize) {
        let mask = plan.mask().unwrap();
        for token in self.offsets.windows(2).flat_map(|ends| ends[0]..ends[1].min(ends[0] + count)) {
            match &mut self.columns[mask] {
                Column::I64(mask) => mask[token] = 0,
                Column::I32(mask) => mask[token] = 0,
                Column::F32(mask) => mask[token] = 0.0,
                Column::Bool(mask) => mask[token] = false,
            }
        }
    }

    /// Replaces the first id of the first id input by one that is in no table.
    pub(crate) fn spoil(&mut self) {
        for column in &mut self.columns {
            if let Column::I64(ids) = column {
                ids[1] = 1_000_000;
                return;
            }
        }
    }

    pub(crate) fn inputs(&self) -> Vec<Input<'_>> {
        const fn input(column: &Column) -> Input<'_> {
            match column {
                Column::F32(data) => Input::F32(data.as_slice()),
                Column::I64(data) => Input::I64(data.as_slice()),
                Column::I32(data) => Input::I32(data.as_slice()),
                Column::Bool(data) => Input::Bool(data.as_slice()),
            }
        }
        self.columns.iter().map(input).collect()
    }
}

/// The CPU's result, in single precision.
pub(crate) fn on_cpu(plan: &Plan, made: &OwnedBatch) -> Vec<Vec<f32>> {
    let executor = cpu::CpuExecutor::new(plan.clone(), cpu::CpuOptions::default()).unwrap();
    let mut outputs = Vec::new();
    let batch = Batch { offsets: &made.offsets, past: &[], inputs: &made.inputs() };
    executor.run(&mut cpu::CpuState::default(), &batch, &mut outputs).unwrap();
    outputs
}

/// Whether any node looks ids up.
pub(crate) fn looks_up(plan: &Plan) -> bool {
    let is_id = |(_, lookup): &(_, Lookup)| matches!(lookup, Lookup::Id(_));
    plan.nodes.iter().any(|node| if let Op::Embed { tables, .. } = &node.op { tables.iter().any(is_id) } else { false })
}

/// The largest difference of two outputs relative to the allowed one, and their cosine.
pub(crate) fn compare(got: &[f32], wanted: &[f32], absolute: f32, relative: f32) -> (f32, f64) {
    assert_eq!(got.len(), wanted.len());
    let over = |(got, wanted): (&f32, &f32)| {
        let share = (got - wanted).abs() / (absolute + relative * wanted.abs());
        if share.is_nan() { f32::INFINITY } else { share }
    };
    let worst = got.iter().zip(wanted).map(over).fold(0.0, f32::max);
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    (worst, dot(got, wanted) / (dot(got, got) * dot(wanted, wanted)).sqrt().max(f64::MIN_POSITIVE))
}
