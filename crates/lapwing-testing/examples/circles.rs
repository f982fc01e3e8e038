//! Prints the circles of modules of this workspace, or of one crate: `cargo run -p lapwing-testing --example circles -- --help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lapwing_testing::circles::{Circle, Detail, describe, known, of_package, packages};

const HELP: &str = "\
Prints the circles of modules, and which uses to cut.

circles [CRATE…] [--level MODULE] [--edges | --places | --list] [--root FOLDER]

  CRATE           only these packages
  --level MODULE  only the circles at this level, `crate` or `proxy::body`, and below
  --edges         the uses that stay, too
  --places        every place of every use
  --list          one line each, as crates/lapwing-testing/tests/circles.txt has them
  --root FOLDER   another workspace
";

#[derive(Default)]
struct Options {
    crates: Vec<String>,
    level: Option<String>,
    detail: Option<Detail>,
    is_list: bool,
    root: Option<PathBuf>,
}

fn main() -> ExitCode {
    match options().and_then(|options| print(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--level" => options.level = Some(value()?),
            "--root" => options.root = Some(value()?.into()),
            "--edges" => options.detail = Some(Detail::Edges),
            "--places" => options.detail = Some(Detail::Places),
            "--list" => options.is_list = true,
            "--help" => return Err(HELP.to_owned()),
            other if other.starts_with('-') => return Err(format!("unknown option {other}\n\n{HELP}")),
            _ => options.crates.push(argument),
        }
    }
    Ok(options)
}

fn print(options: &Options) -> Result<(), String> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = options.root.as_ref().unwrap_or(&default);
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let packages = packages(&root)?;
    if let Some(unknown) = options.crates.iter().find(|name| !packages.iter().any(|p| p.name == **name)) {
        return Err(format!("no package {unknown} in {}", root.display()));
    }
    let is_wanted = |circle: &Circle| {
        let below =
            |level: &String| level == "crate" || circle.level == *level || circle.level.starts_with(&format!("{level}::"));
        options.level.as_ref().is_none_or(below)
    };
    let mut count = 0;
    for package in packages.iter().filter(|p| options.crates.is_empty() || options.crates.contains(&p.name)) {
        for circle in of_package(package, &root)?.iter().filter(|circle| is_wanted(circle)) {
            count += 1;
            match options.is_list {
                true => println!("{}", known(circle)),
                false => println!("{}", describe(circle, options.detail.unwrap_or(Detail::Cuts))),
            }
        }
    }
    if !options.is_list {
        println!("{count} circles");
    }
    Ok(())
}
