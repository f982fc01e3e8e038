//! `lapwing engine serve`: serves models on the engine, without a proxy.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use crate::app::hosted::Hosted;
use crate::app::{check, log, service_manager, signals};
use crate::config::{self, EngineConfig, Flag, Sources};
use crate::serving::config::{stem, versioned};
use lapwing_onnx::StatedShape;

/// Shown below the flags.
pub(crate) const EXAMPLES: &str = "\
Examples:
  lapwing engine serve --model model.onnx                          serve the Open Inference Protocol on 127.0.0.1:8081
  lapwing engine serve --model fraud@2=new.onnx --model fraud=old.onnx   two versions; the highest is the default
  lapwing engine serve --model model.onnx --precision int8         in 8 bits
  lapwing engine serve --model model.onnx --shape image=1,3,224,224   the shape of an input that the file leaves open
  lapwing engine serve --model model.onnx --device cuda:1          on the second GPU; an error if it cannot run the model
  curl 127.0.0.1:8081/v2/models/model                              print the model's inputs and outputs

REST (JSON, or tensors as bytes), gRPC and /metrics share one port. /v2/health/ready is 200 once every model is warm.
Every setting of the section `engine` may also come from --config or the environment: LAPWING_ENGINE__MAX_WAIT=2ms.";

/// The arguments of `serve`. Settings stay text here: `config::load_as` reads them.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ServeArgs {
    /// An ONNX file, as FILE, NAME=FILE or NAME@VERSION=FILE; may be given several times. A FILE with = in its name may be written
    /// as ./FILE
    #[arg(long = "model", value_name = "[NAME[@VERSION]=]FILE")]
    models: Vec<String>,
    /// Shape of an input whose axes the file leaves open, as in image=1,3,224,224 (-1: still open); of several models, as
    /// NAME/image=1,3,224,224; may be given several times
    #[arg(long = "shape", value_name = "[NAME/]INPUT=LENGTHS")]
    shapes: Vec<StatedShape>,
    /// YAML file with any setting [env: LAPWING_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Address on which models are served [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// auto: the first GPU if it supports the model, else the processor; cpu; cuda or cuda:N: only that GPU [default: auto]
    #[arg(long, value_name = "DEVICE", help_heading = "Device")]
    device: Option<String>,
    /// Folder in which libcuda.so.1 and cublasLt are looked for first [default: off, where the system has them]
    #[arg(long, value_name = "DIR", help_heading = "Device")]
    cuda_lib_dir: Option<String>,
    /// auto: the model's plan if it has one, or that of a classical model, else ONNX Runtime where its library is found, else rten;
    /// plan, tabular, rten or onnxruntime: that one alone [default: auto]
    #[arg(long, value_name = "HOW", help_heading = "Executor")]
    executor: Option<String>,
    /// ONNX Runtime's library: a file or folder; auto: the one that is found; off: none [default: auto]
    #[arg(long, value_name = "PATH", help_heading = "Executor")]
    ort_lib: Option<String>,
    /// What runs nodes in ONNX Runtime: cpu, cuda, cuda:N, tensorrt or tensorrt:N [default: cpu]
    #[arg(long, value_name = "PROVIDER", help_heading = "Executor")]
    ort_provider: Option<String>,
    /// auto: models that others run are held against ONNX Runtime when they are loaded; off: they are not [default: auto]
    #[arg(long, value_name = "HOW", help_heading = "Executor")]
    verify: Option<String>,
    /// fp32 or int8; on a GPU also tf32 and fp16 [default: fp32]
    #[arg(long, value_name = "PRECISION", help_heading = "Precision")]
    precision: Option<String>,
    /// Ranges for int8, a file that `lapwing engine quantize` wrote [default: off, a range for each row]
    #[arg(long, value_name = "FILE", help_heading = "Precision")]
    calibration: Option<String>,
    /// Number of threads of a forward pass [default: 0, one for each processor]
    #[arg(long, value_name = "N", help_heading = "Processors")]
    threads: Option<String>,
    /// Processors to which the threads are pinned, as in 0-3,6 [default: auto, any]
    #[arg(long, value_name = "CPUS", help_heading = "Processors")]
    cpus: Option<String>,
    /// adaptive: by the cost of calls, waiting only as long as it pays; fixed:N: in order of arrival, N at a time [default: adaptive]
    #[arg(long, value_name = "HOW", help_heading = "Batches")]
    policy: Option<String>,
    /// Minimum time that a call waits for others [default: 0s]
    #[arg(long, value_name = "PERIOD", help_heading = "Batches")]
    min_wait: Option<String>,
    /// Maximum time that a call waits for others [default: 5ms]
    #[arg(long, value_name = "PERIOD", help_heading = "Batches")]
    max_wait: Option<String>,
    /// Maximum number of tokens per batch (rows, if the model has no tokens); a larger call runs alone [default: 16384]
    #[arg(long, value_name = "N", help_heading = "Batches")]
    max_batch_tokens: Option<String>,
    /// Maximum number of calls per batch [default: 256]
    #[arg(long, value_name = "N", help_heading = "Batches")]
    max_batch_calls: Option<String>,
    /// Maximum number of waiting calls; further ones are refused [default: 1024]
    #[arg(long, value_name = "N", help_heading = "Batches")]
    queue: Option<String>,
    /// Timeout of requests that set none of their own [default: off]
    #[arg(long, value_name = "PERIOD", help_heading = "Batches")]
    timeout: Option<String>,
    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

impl ServeArgs {
    /// The models' names, with their versions where they are given, and their files.
    fn named(&self) -> impl Iterator<Item = (String, String)> {
        self.models.iter().map(|given| match given.split_once('=') {
            Some((name, file)) if !is_file_with_equals(given, name, file) => (name.to_owned(), file.to_owned()),
            _ => (stem(Path::new(given)), given.clone()),
        })
    }

    /// The sources from which the configuration is loaded, with the process's environment `env`.
    fn sources(&self, env: Vec<(String, String)>) -> Sources {
        let models = self.named().map(|(name, file)| (format!("engine.models.{name}"), "--model", file));
        let shapes =
            self.shapes.iter().map(|shape| (format!("engine.shapes.{}", shape.input), "--shape", shape.lengths.to_string()));
        let settings = [
            ("engine.listen", "--listen", &self.listen),
            ("engine.device", "--device", &self.device),
            ("engine.executor", "--executor", &self.executor),
            ("engine.ort_lib", "--ort-lib", &self.ort_lib),
            ("engine.ort_provider", "--ort-provider", &self.ort_provider),
            ("engine.verify", "--verify", &self.verify),
            ("engine.precision", "--precision", &self.precision),
            ("engine.cuda_lib_dir", "--cuda-lib-dir", &self.cuda_lib_dir),
            ("engine.calibration", "--calibration", &self.calibration),
            ("engine.threads", "--threads", &self.threads),
            ("engine.cpus", "--cpus", &self.cpus),
            ("engine.policy", "--policy", &self.policy),
            ("engine.min_wait", "--min-wait", &self.min_wait),
            ("engine.max_wait", "--max-wait", &self.max_wait),
            ("engine.max_batch_tokens", "--max-batch-tokens", &self.max_batch_tokens),
            ("engine.max_batch_calls", "--max-batch-calls", &self.max_batch_calls),
            ("engine.queue", "--queue", &self.queue),
            ("engine.timeout", "--timeout", &self.timeout),
            ("log", "--log", &self.log),
        ];
        let given = settings.into_iter().filter_map(|(path, name, text)| Some((path.to_owned(), name, text.clone()?)));
        let flags =
            models.chain(shapes).chain(given).map(|(path, name, text)| Flag { path, name: name.to_owned(), text }).collect();
        Sources::new(self.config.clone(), env, flags)
    }
}

/// Whether a text with `=` in it is a file's path, not `NAME=FILE`: no name has a `/`, and a file that exists is meant unless
/// the other reading names one too.
fn is_file_with_equals(given: &str, name: &str, file: &str) -> bool {
    name.contains('/') || (Path::new(given).is_file() && !Path::new(file).is_file())
}

/// Serves until a signal; returns the exit code.
pub(crate) fn run(args: &ServeArgs, env: Vec<(String, String)>) -> ExitCode {
    let names: Vec<String> = args.named().map(|(name, _)| name).collect();
    let is_twice = |(at, name): &(usize, &String)| names[..*at].iter().any(|other| versioned(other) == versioned(name));
    if let Some((_, name)) = names.iter().enumerate().find(is_twice) {
        eprintln!("lapwing engine serve: --model: {name} is given twice");
        return ExitCode::from(check::USAGE as u8);
    }
    let loaded = match config::load_as::<EngineConfig>(&args.sources(env)) {
        Ok(loaded) => loaded,
        Err(faults) => {
            // standard error may be closed
            drop(check::write_faults(&faults, &mut std::io::stderr().lock()));
            return ExitCode::from(check::USAGE as u8);
        }
    };
    log::init(&loaded.config.log, loaded.config.log_format);
    match serve(&loaded.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lapwing engine serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: &EngineConfig) -> Result<(), Box<dyn std::error::Error>> {
    let signals = signals::Signals::listen(false)?;
    let hosted = Hosted::start(&config.engine, 0, config.drain_timeout)?;
    tracing::info!(listen = %hosted.address(), "lapwing engine {} serves", env!("CARGO_PKG_VERSION"));
    service_manager::ready(&format!("models are served on {}", hosted.address()));
    let by = signals::wait(signals, &mut Serving(&hosted));
    service_manager::stopping(config.drain_timeout);
    tracing::info!(drain_timeout = %config.drain_timeout, "{by}: draining; a second signal ends at once");
    Ok(hosted.stop()?)
}

struct Serving<'h>(&'h Hosted);

impl signals::Watched for Serving<'_> {
    fn poll(&mut self) -> bool {
        self.0.has_failed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_file_or_a_name_and_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let existing = folder.path().join("depth=6,rounds=100.onnx");
        std::fs::write(&existing, "").unwrap();
        let existing = existing.to_str().unwrap();
        for (given, name, file) in [
            ("model.onnx", "model", "model.onnx"),
            ("fraud=old.onnx", "fraud", "old.onnx"),
            ("fraud@2=/models/new.onnx", "fraud@2", "/models/new.onnx"),
            ("fraud=/models/a=b.onnx", "fraud", "/models/a=b.onnx"),
            ("./a=b.onnx", "a_b", "./a=b.onnx"),
            ("/models/run=7/model.onnx", "model", "/models/run=7/model.onnx"),
            (existing, "depth_6_rounds_100", existing),
        ] {
            let args = ServeArgs { models: vec![given.to_owned()], ..ServeArgs::default() };
            assert_eq!(args.named().collect::<Vec<_>>(), [(name.to_owned(), file.to_owned())], "{given}");
        }
        // both may be meant: the name, as documented
        let named = is_file_with_equals("fraud=Cargo.toml", "fraud", "Cargo.toml");
        assert!(!named);
    }
}
