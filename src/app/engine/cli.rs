//! The arguments of the `lapwing engine` commands, and the parsers of lists and processors.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use super::serve::{EXAMPLES, ServeArgs};
use crate::app::trial::TryLoadArgs;
use lapwing_model::{Backend, Device, OrtLibrary, ProviderChoice};
use lapwing_onnx::StatedShape;
use lapwing_plan::Precision;

const INSPECT: &str = "\
FLOPs count a multiply-add as two. Bytes count each matrix that a node reads or writes once; `min bytes` count only what any
execution must access: weights, inputs and outputs.

Examples:
  lapwing engine inspect model.onnx                             print its operators, what runs it, and its cost
  lapwing engine inspect model.onnx --batch 1,8 --length 256    print the cost at these sizes
  lapwing engine inspect model.onnx --shape image=1,3,224,224   with the shape of an input that the file leaves open
  lapwing engine inspect model.onnx --plan                      also print its nodes, after fusion
  lapwing engine inspect model.onnx --plan --json               print the plan as JSON
  lapwing engine inspect model.onnx --plan --device cuda        print the kernels that a GPU would run; no GPU is needed

A model that has no plan is run by ONNX Runtime where its library is found, else by rten; the node that is not supported is named. A
model that ONNX Runtime does not run is held against it on generated calls, as when it is served.";

const BENCH: &str = "\
Each case is warmed up; then forward passes are timed one by one, without a queue, on synthetic inputs. `util` is the measured rate
over the peak of what limits the model (compute, memory or launch); peaks are measured first, on the same threads.

Examples:
  lapwing engine bench model.onnx                                    1 row and 32 rows, on one thread
  lapwing engine bench model.onnx --batch 1,8,32 --length 64,128     six cases
  lapwing engine bench model.onnx --threads 1,2 --cpus 0-1           each thread on its own processor
  lapwing engine bench model.onnx --precision int8                   in 8 bits, with a range for each row
  lapwing engine bench model.onnx --device cuda --precision fp16     on the first GPU; an error if there is none
  lapwing engine bench model.onnx --executor onnxruntime             by ONNX Runtime, for comparison
  lapwing engine bench model.onnx --json                             one JSON object per line, for scripts";

const QUANTIZE: &str = "\
Runs the model over the rows in single precision and in 8 bits, records the range of each product's inputs, and reports the size of
the weights, the speed, and how far each output is from single precision. Masked tokens are left out.

Rows are a .npy file for models with one input, else a .npz file (numpy.savez) with an array for each input, by its name.

Examples:
  lapwing engine quantize model.onnx --calibrate rows.npy                        report what 8 bits would cost and gain
  lapwing engine quantize model.onnx --calibrate rows.npz --against other.npz    evaluate on rows not used for the ranges
  lapwing engine quantize model.onnx --calibrate rows.npz --output ranges.json   store the ranges

8 bits are used only if you select them: `--precision int8 --calibration ranges.json`.";

/// A command of `lapwing engine`.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum EngineSub {
    /// Serve models with the Open Inference Protocol, by REST and gRPC
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Describe a model: its operators, what runs it, and its cost by shape
    #[command(after_help = INSPECT)]
    Inspect(InspectArgs),
    /// Time a model's forward passes, and compare them with the best that this machine can do
    #[command(after_help = BENCH)]
    Bench(BenchArgs),
    /// Report what a model loses and gains in 8 bits, and write the ranges of its products' inputs
    #[command(after_help = QUANTIZE)]
    Quantize(QuantizeArgs),
    /// Load a model within limits of memory and time, and say whether it could be loaded
    #[command(hide = true)]
    TryLoad(TryLoadArgs),
}

/// The arguments of `inspect`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct InspectArgs {
    /// The model, an ONNX file
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Rows (sequences) per batch, as a comma-separated list [default: 1,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(4096))]
    pub batch: Vec<u64>,
    /// Tokens per sequence, as a comma-separated list [default: 16,128]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(65_536))]
    pub length: Vec<u64>,
    /// Shape of an input whose axes the file leaves open, as in image=1,3,224,224 (-1: still open); may be given several times
    #[arg(long = "shape", value_name = "INPUT=LENGTHS")]
    pub shapes: Vec<StatedShape>,
    /// Also print the plan, one node per line, with the cost of each node at the first shape
    #[arg(long)]
    pub plan: bool,
    /// What is to run the model
    #[arg(long, value_parser = backend(), default_value = "auto")]
    pub executor: Backend,
    /// ONNX Runtime's library: auto, off, or a file or folder
    #[arg(long, value_name = "PATH", default_value_t = OrtLibrary::Auto)]
    pub ort_lib: OrtLibrary,
    /// What runs nodes in ONNX Runtime: cpu, cuda, cuda:N, tensorrt or tensorrt:N
    #[arg(long, value_name = "PROVIDER", default_value = "cpu")]
    pub ort_provider: ProviderChoice,
    /// With --plan: cuda prints the kernels that a GPU would run (no GPU is needed)
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    pub device: Device,
    /// With --device cuda: number format of products
    #[arg(long, value_parser = precision(), default_value = "fp32")]
    pub precision: Precision,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `bench`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct BenchArgs {
    /// The model, an ONNX file
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Rows (sequences) per batch, as a comma-separated list [default: 1,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(4096))]
    pub batch: Vec<u64>,
    /// Tokens per sequence, as a comma-separated list [default: 64]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(65_536))]
    pub length: Vec<u64>,
    /// Shape of an input whose axes the file leaves open, as in image=1,3,224,224 (-1: still open); may be given several times
    #[arg(long = "shape", value_name = "INPUT=LENGTHS")]
    pub shapes: Vec<StatedShape>,
    /// Threads that share a forward pass, as a comma-separated list
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = count(1024))]
    pub threads: Vec<u64>,
    /// Seconds for which each case is timed, with at least five forward passes
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Device that the model runs on: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    pub device: Device,
    /// Folder in which libcuda.so.1 and cublasLt are looked for first [default: where the system has them]
    #[arg(long, value_name = "DIR")]
    pub cuda_lib_dir: Option<PathBuf>,
    /// Number format of products
    #[arg(long, value_parser = precision(), default_value = "fp32")]
    pub precision: Precision,
    /// Ranges for int8, a file that `quantize` wrote [default: a range for each row]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// What is to run the model
    #[arg(long, value_parser = backend(), default_value = "auto")]
    pub executor: Backend,
    /// ONNX Runtime's library: auto, off, or a file or folder
    #[arg(long, value_name = "PATH", default_value_t = OrtLibrary::Auto)]
    pub ort_lib: OrtLibrary,
    /// What runs nodes in ONNX Runtime: cpu, cuda, cuda:N, tensorrt or tensorrt:N
    #[arg(long, value_name = "PROVIDER", default_value = "cpu")]
    pub ort_provider: ProviderChoice,
    /// Processors to which threads are pinned, as in 0-1 or 0,2 [default: any]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<CpuList>,
    /// Whose kernels compute products on a GPU
    #[arg(long, value_enum, default_value_t = Products::Auto)]
    pub gemm: Products,
    /// With --json: also print the time of every pass, and on a GPU that of every kernel
    #[arg(long, requires = "json")]
    pub samples: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `quantize`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct QuantizeArgs {
    /// The model, an ONNX file
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Rows from which the ranges are determined
    #[arg(long, value_name = "ROWS.npy|npz")]
    pub calibrate: PathBuf,
    /// Rows on which accuracy and speed are evaluated [default: those of --calibrate]
    #[arg(long, value_name = "ROWS.npy|npz")]
    pub against: Option<PathBuf>,
    /// Rows per batch
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count(4096))]
    pub batch: u64,
    /// Seconds for which the speed is measured, with all precisions in turn
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Threads that share a forward pass
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1024))]
    pub threads: u64,
    /// Processors to which threads are pinned, as in 0-1 or 0,2 [default: any]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<CpuList>,
    /// File to which the ranges are written, as JSON [default: none]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// Reads a precision by its name; `--help` explains each.
fn precision() -> impl TypedValueParser<Value = Precision> {
    let help = |precision| match precision {
        Precision::Fp32 => "Single precision",
        Precision::Tf32 => "Single precision with factors of 10 fraction bits; GPU only",
        Precision::Fp16 => "Half precision, summed in single precision; GPU only",
        Precision::Int8 => "8-bit integers where a product is suited to them",
    };
    let values = Precision::ALL.map(|precision| PossibleValue::new(precision.name()).help(help(precision)));
    PossibleValuesParser::new(values)
        .map(|name| Precision::ALL.into_iter().find(|precision| precision.name() == name).unwrap_or_default())
}

/// Reads a backend by its name; `--help` explains each.
fn backend() -> impl TypedValueParser<Value = Backend> {
    let help = |backend| match backend {
        Backend::Auto => {
            "Its plan if it has one, or that of a classical model, else ONNX Runtime where its library is found, else rten"
        }
        Backend::Plan => "Its plan",
        Backend::Tabular => "The plan of a classical model: trees, linear models and what prepares their columns",
        Backend::Rten => "rten, which is in this program",
        Backend::OnnxRuntime => "ONNX Runtime",
    };
    let values = Backend::ALL.map(|backend| PossibleValue::new(backend.name()).help(help(backend)));
    PossibleValuesParser::new(values)
        .map(|name| Backend::ALL.into_iter().find(|backend| backend.name() == name).unwrap_or_default())
}

/// Whose kernels compute products on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Products {
    /// The fastest available
    Auto,
    /// Only Lapwing's own
    Own,
}

/// Processors by number, as they were listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

fn count(most: u64) -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=most)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.trim().parse().map_err(|_| "is not a number".to_owned())?;
    if (0.001..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be between 0.001 and 3600".to_owned()) }
}

/// `0-1,4`
fn cpus(text: &str) -> Result<CpuList, String> {
    let bad = || "needs numbers and ranges, as in 0-1 or 0,2".to_owned();
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().map_err(|_| bad())?, last.trim().parse().map_err(|_| bad())?);
        if last < first || last >= 4096 {
            return Err(bad());
        }
        list.extend(first..=last);
    }
    let mut once = list.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() == list.len() { Ok(CpuList(list)) } else { Err("names a processor twice".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::cli::{Command, parse};

    #[test]
    fn processors_are_numbers_and_ranges() {
        assert_eq!(cpus("0-1,4").unwrap(), CpuList(vec![0, 1, 4]));
        assert_eq!(cpus("3").unwrap(), CpuList(vec![3]));
        for wrong in ["", "a", "2-1", "0-", "0,0", "1-2,2", "0-99999999"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_model_is_inspected_timed_and_quantized() {
        let parsed = |line: &str| parse(line.split(' ').map(Into::into), []);
        let Command::Engine(EngineSub::Inspect(args), _) = parsed("lapwing engine inspect m.onnx --batch 1,8 --plan").unwrap()
        else {
            panic!("not inspect")
        };
        assert_eq!((args.batch, args.length, args.plan, args.json), (vec![1, 8], vec![], true, false));
        let line = "lapwing engine bench m.onnx --threads 1,2 --cpus 0-1 --precision int8 --device cuda:1 --cuda-lib-dir /l --seconds 0.5 --json";
        let Command::Engine(EngineSub::Bench(args), _) = parsed(line).unwrap() else { panic!("not bench") };
        assert_eq!((args.threads, args.cpus, args.device), (vec![1, 2], Some(CpuList(vec![0, 1])), Device::Cuda(1)));
        assert_eq!(args.cuda_lib_dir, Some("/l".into()));
        assert_eq!((args.precision, args.seconds, args.json), (Precision::Int8, 0.5, true));
        let Command::Engine(EngineSub::Quantize(args), _) = parsed("lapwing engine quantize m.onnx --calibrate r.npz").unwrap()
        else {
            panic!("not quantize")
        };
        assert_eq!((args.batch, args.threads, args.output), (32, 1, None));
        for wrong in [
            "inspect",
            "inspect m.onnx --batch 0",
            "bench m.onnx --seconds 0",
            "bench m.onnx --cpus 1-0",
            "bench m.onnx --precision bf16",
            "bench m.onnx --device gpu",
            "bench m.onnx --device cuda:256",
            "bench m.onnx --threads 0",
            "bench m.onnx --samples",
            "bench m.onnx --gemm cublas",
            "quantize m.onnx",
            "--upstream http://m:1 inspect m.onnx",
        ] {
            assert!(parsed(&format!("lapwing engine {wrong}")).is_err(), "{wrong}");
        }
    }
}
