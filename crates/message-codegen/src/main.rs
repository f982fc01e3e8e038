//! Generates the messages of protocols and files from their `.proto`, each beside it: [`SOURCES`].
//!
//! The code is committed, so that a build of Lapwing needs neither this tool nor `protoc`. `--check` writes nothing and fails where
//! the committed code is not what would be generated.

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

/// A `.proto` and how its messages are generated.
struct Source {
    /// Its folder, from this crate's.
    folder: &'static str,
    /// Its name.
    proto: &'static str,
    /// Its package, which names what is generated.
    package: &'static str,
    /// What is generated, beside it.
    code: &'static str,
    /// The fields that share the memory of what they were read from.
    shared: &'static str,
    /// Whether the comments of the `.proto` are repeated.
    has_comments: bool,
    /// The first lines.
    head: &'static str,
}

const SOURCES: &[Source] = &[
    Source {
        folder: "../lapwing-serving/src/grpc",
        proto: "open_inference.proto",
        package: "inference",
        code: "messages.rs",
        shared: ".",
        has_comments: true,
        head: "\
//! The messages of `inference.GRPCInferenceService`, generated from `open_inference.proto` by `crates/message-codegen`: not to be edited.
//!
//! Fields of type `bytes` are [`bytes::Bytes`], which share the memory of the message they were read from.
",
    },
    Source {
        folder: "../lapwing-onnx/src",
        proto: "onnx.proto",
        package: "onnx",
        code: "messages.rs",
        shared: ".onnx.TensorProto.raw_data",
        has_comments: false,
        head: "\
//! The messages of an ONNX file, generated from `onnx.proto` by `crates/message-codegen`: not to be edited. That file says what each
//! field means; it is `onnx-ml.proto` of onnx 1.23.2 in the syntax of proto3.
//!
//! `TensorProto::raw_data` shares the memory of the file that it was read from.
",
    },
];
const USAGE: &str = "\
usage: cargo run --manifest-path crates/message-codegen/Cargo.toml [-- --check]

Writes the Rust messages of open_inference.proto (crates/lapwing-serving) and onnx.proto (crates/lapwing-onnx) beside them.
  --check   write nothing; exit with 1 if the committed code is not what would be generated";
const ALLOWED: &str = "
#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = \"generated code\")]

";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => SOURCES.iter().try_for_each(|source| run(source, false)),
        ["--check"] => SOURCES.iter().try_for_each(|source| run(source, true)),
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

fn run(source: &Source, only_check: bool) -> Result<(), Box<dyn Error>> {
    let code = generate(source)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(source.folder);
    let path = folder.join(source.code);
    if !only_check {
        std::fs::write(&path, code)?;
        return Ok(());
    }
    if std::fs::read_to_string(&path)? == code {
        Ok(())
    } else {
        let Source { folder, proto, code, .. } = source;
        Err(format!("{folder}/{code} is not what {proto} generates: run this tool without --check and commit the result").into())
    }
}

/// The code, formatted as the rest of the repository is.
fn generate(source: &Source) -> Result<String, Box<dyn Error>> {
    let out = std::env::temp_dir().join(format!("message-codegen-{}", std::process::id()));
    std::fs::create_dir_all(&out)?;
    let generated = generate_in(source, &out);
    std::fs::remove_dir_all(&out)?;
    generated
}

fn generate_in(source: &Source, out: &Path) -> Result<String, Box<dyn Error>> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crate_folder.join(source.folder);
    let descriptors = protox::compile([folder.join(source.proto)], [&folder])?;
    let mut config = prost_build::Config::new();
    if !source.has_comments {
        config.disable_comments(["."]);
    }
    config.out_dir(out).bytes([source.shared]).compile_fds(descriptors)?;
    let path = out.join(source.package).with_extension("rs");
    let code = std::fs::read_to_string(&path)?;
    std::fs::write(&path, source.head.to_owned() + ALLOWED + &code)?;
    let formatted =
        Command::new("rustfmt").args(["--edition", "2024", "--config-path"]).arg(crate_folder.join("../..")).arg(&path).status()?;
    if !formatted.success() {
        return Err("rustfmt failed".into());
    }
    Ok(std::fs::read_to_string(&path)?)
}
