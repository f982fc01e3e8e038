//! Generates the messages of the Open Inference Protocol: `crates/lapwing-serving/src/grpc/messages.rs` from `open_inference.proto` beside it.
//!
//! The code is committed, so that a build of Lapwing needs neither this tool nor `protoc`. `--check` writes nothing and fails where
//! the committed code is not what would be generated.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

const PROTO: &str = "open_inference.proto";
const CODE: &str = "messages.rs";
const USAGE: &str = "\
usage: cargo run --manifest-path crates/oip-codegen/Cargo.toml [-- --check]

Writes crates/lapwing-serving/src/grpc/messages.rs from crates/lapwing-serving/src/grpc/open_inference.proto.
  --check   write nothing; exit with 1 if the committed code is not what would be generated";
const HEAD: &str = "\
//! The messages of `inference.GRPCInferenceService`, generated from `open_inference.proto` by `crates/oip-codegen`: not to be edited.
//!
//! Fields of type `bytes` are [`bytes::Bytes`], which share the memory of the message they were read from.

#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = \"generated code\")]

";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(false),
        ["--check"] => run(true),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(only_check: bool) -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lapwing-serving/src/grpc");
    let code = generate(&folder)?;
    let path = folder.join(CODE);
    if !only_check {
        std::fs::write(&path, code)?;
        return Ok(());
    }
    if std::fs::read_to_string(&path)? == code {
        Ok(())
    } else {
        Err(format!("{CODE} is not what {PROTO} generates: run this tool without --check and commit the result").into())
    }
}

/// The code, formatted as the rest of the repository is.
fn generate(folder: &Path) -> Result<String, Box<dyn Error>> {
    let out = std::env::temp_dir().join(format!("oip-codegen-{}", std::process::id()));
    std::fs::create_dir_all(&out)?;
    let generated = generate_in(folder, &out);
    std::fs::remove_dir_all(&out)?;
    generated
}

fn generate_in(folder: &Path, out: &Path) -> Result<String, Box<dyn Error>> {
    let descriptors = protox::compile([folder.join(PROTO)], [folder])?;
    let mut config = prost_build::Config::new();
    config.out_dir(out).bytes(["."]).compile_fds(descriptors)?;
    let path = out.join("inference.rs");
    let code = std::fs::read_to_string(&path)?;
    std::fs::write(&path, HEAD.to_owned() + &code)?;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let formatted = Command::new("rustfmt").args(["--edition", "2024", "--config-path"]).arg(rules).arg(&path).status()?;
    if !formatted.success() {
        return Err("rustfmt failed".into());
    }
    Ok(std::fs::read_to_string(&path)?)
}
