//! What may be asked of `lapwing engine`: the arguments of its commands, and how lists and processors are written.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use super::serve::{EXAMPLES, ServeArgs};
use lapwing_engine::{Backend, Device, Precision};

const INSPECT: &str = "\
FLOPs count a multiply-add as two. Bytes are those of each matrix that a node reads or writes, once; `min bytes` are those that
any execution must touch: weights, inputs and outputs.

Examples:
  lapwing engine inspect model.onnx                             what it is, what runs it, what it costs
  lapwing engine inspect model.onnx --batch 1,8 --length 256    at these sizes
  lapwing engine inspect model.onnx --plan                      also its nodes, after fusion
  lapwing engine inspect model.onnx --plan --json               the plan as JSON
  lapwing engine inspect model.onnx --plan --device cuda        the kernels that a GPU would run for it; none need be there

A model that has no plan is run by tract; the node that stands in the way is named.";

const BENCH: &str = "\
Each case is warmed up; then forward passes are timed one by one, without a queue, on inputs that are made up. `util` is the rate
over the peak of what binds the model (compute, memory or launch); peaks are measured first, on the same threads.

Examples:
  lapwing engine bench model.onnx                                    one row and 32, on one thread
  lapwing engine bench model.onnx --batch 1,8,32 --length 64,128     six cases
  lapwing engine bench model.onnx --threads 1,2 --cpus 0-1           each thread on a processor of its own
  lapwing engine bench model.onnx --precision int8                   in 8 bits, rows with ranges of their own
  lapwing engine bench model.onnx --device cuda --precision fp16     on the first GPU, or not at all
  lapwing engine bench model.onnx --executor tract                   by tract, to compare with
  lapwing engine bench model.onnx --json                             an object a line, for scripts";

const QUANTIZE: &str = "\
Runs the model in single precision over the rows, looks at what goes into each product, and compares: weights, speed, and how far
each output is from single precision. Tokens that are masked out do not count.

Rows are a .npy file for models of one input, else a .npz file (numpy.savez) with an array for each input, by its name.

Examples:
  lapwing engine quantize model.onnx --calibrate rows.npy                        what 8 bits would cost and gain
  lapwing engine quantize model.onnx --calibrate rows.npz --against other.npz    judged by rows that were not seen
  lapwing engine quantize model.onnx --calibrate rows.npz --output ranges.json   keep the ranges

8 bits are never chosen by themselves: `--precision int8 --calibration ranges.json` asks for them.";

/// What to do with a model.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum EngineSub {
    /// Serve models: the Open Inference Protocol by REST and gRPC, on this engine
    #[command(after_help = EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Tell what a model is, what runs it, and what it costs by shape
    #[command(after_help = INSPECT)]
    Inspect(InspectArgs),
    /// Time a model's forward passes, and compare them with what this machine could do at best
    #[command(after_help = BENCH)]
    Bench(BenchArgs),
    /// Tell what a model loses and gains in 8 bits, and write the ranges that its products' inputs have
    #[command(after_help = QUANTIZE)]
    Quantize(QuantizeArgs),
}

/// What `inspect` is asked.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct InspectArgs {
    /// The model, an ONNX file
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Rows (sequences) of a batch, several by commas [default: 1,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(4096))]
    pub batch: Vec<u64>,
    /// Tokens of a sequence, several by commas [default: 16,128]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(65_536))]
    pub length: Vec<u64>,
    /// The plan too, a node a line; what nodes cost is that of the first shape
    #[arg(long)]
    pub plan: bool,
    /// With --plan: cuda, for the kernels that a GPU would run (none need be there)
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    pub device: Device,
    /// With --device cuda: in what numbers products are done there
    #[arg(long, value_parser = precision(), default_value = "fp32")]
    pub precision: Precision,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `bench` is asked.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct BenchArgs {
    /// The model, an ONNX file
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Rows (sequences) of a batch, several by commas [default: 1,32]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(4096))]
    pub batch: Vec<u64>,
    /// Tokens of a sequence, several by commas [default: 64]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count(65_536))]
    pub length: Vec<u64>,
    /// Threads that share a forward pass, several by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = count(1024))]
    pub threads: Vec<u64>,
    /// How long each case is timed, at least five forward passes
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Where it runs: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto)]
    pub device: Device,
    /// Where libcuda.so.1 and cublasLt are looked for first [default: where the system has them]
    #[arg(long, value_name = "DIR")]
    pub cuda_lib_dir: Option<PathBuf>,
    /// In what numbers products are done
    #[arg(long, value_parser = precision(), default_value = "fp32")]
    pub precision: Precision,
    /// Ranges that `quantize` wrote, for int8 [default: each row its own]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// What runs it: its plan where it has one, or tract
    #[arg(long, value_parser = backend(), default_value = "auto")]
    pub executor: Backend,
    /// Processors that threads are held to, as in 0-1 or 0,2 [default: any]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<CpuList>,
    /// Whose kernels do products on a GPU
    #[arg(long, value_enum, default_value_t = Products::Auto)]
    pub gemm: Products,
    /// With --json: every time too, and on a GPU that of every kernel
    #[arg(long, requires = "json")]
    pub samples: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// What `quantize` is asked.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct QuantizeArgs {
    /// The model, an ONNX file
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Rows that ranges are found on
    #[arg(long, value_name = "ROWS.npy|npz")]
    pub calibrate: PathBuf,
    /// Rows that accuracy and speed are judged by [default: those of --calibrate]
    #[arg(long, value_name = "ROWS.npy|npz")]
    pub against: Option<PathBuf>,
    /// Rows of a batch
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count(4096))]
    pub batch: u64,
    /// How long speed is measured, all precisions in turn
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Threads that share a forward pass
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1024))]
    pub threads: u64,
    /// Processors that threads are held to, as in 0-1 or 0,2 [default: any]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<CpuList>,
    /// Where the ranges are written, as JSON [default: nowhere]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Reads a precision by its name; `--help` explains each.
fn precision() -> impl TypedValueParser<Value = Precision> {
    let help = |precision| match precision {
        Precision::Fp32 => "Single precision",
        Precision::Tf32 => "Single precision, what is multiplied cut to 10 bits of fraction; on a GPU",
        Precision::Fp16 => "Half precision, summed in single; on a GPU",
        Precision::Int8 => "8-bit whole numbers, where a product is fit for them",
    };
    let values = Precision::ALL.map(|precision| PossibleValue::new(precision.name()).help(help(precision)));
    PossibleValuesParser::new(values)
        .map(|name| Precision::ALL.into_iter().find(|precision| precision.name() == name).unwrap_or_default())
}

/// Reads a backend by its name; `--help` explains each.
fn backend() -> impl TypedValueParser<Value = Backend> {
    let auto = PossibleValue::new("auto").help("Its plan where it has one, else tract");
    PossibleValuesParser::new([auto, PossibleValue::new("tract").help("Tract")])
        .map(|name| if name == "tract" { Backend::Tract } else { Backend::Auto })
}

/// Whose kernels do products on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Products {
    /// The quickest that is found
    Auto,
    /// Lapwing's own alone
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
