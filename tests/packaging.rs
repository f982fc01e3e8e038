//! What ships beside the code agrees with it: the image's toolchain and its context, and the examples' versions.

use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Paths that `src` includes, relative to the package, outside of test modules' own files.
fn included() -> Vec<PathBuf> {
    let mut todo = vec![PathBuf::from("src")];
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(root.join(&at)).unwrap() {
            let path = at.join(entry.unwrap().file_name());
            if root.join(&path).is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.to_string_lossy().ends_with("tests.rs") {
                let text = fs::read_to_string(root.join(&path)).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or("");
                for at in code.match_indices("include_").map(|(at, _)| at) {
                    if let Some(name) = code[at..].lines().next().and_then(|l| l.split('"').nth(1)) {
                        found.push(path.parent().unwrap().join(name));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn the_image_is_built_with_the_pinned_toolchain_from_locked_dependencies() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|l| l.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(&format!("FROM rust:{channel}-")), "Dockerfile: not rust {channel}");
    assert!(dockerfile.contains("cargo build --release --locked"));
    assert!(dockerfile.contains("USER 65532:65532"));
}

#[test]
fn what_the_code_includes_is_in_the_images_context() {
    let included = included();
    assert!(included.iter().any(|p| p.ends_with("digits.onnx")), "{included:?}");
    for path in included {
        assert!(path.starts_with("src") && !path.to_string_lossy().contains(".."), "{} is not below src", path.display());
    }
    let ignore = read(".dockerignore");
    for kept in ["*", "!Cargo.toml", "!Cargo.lock", "!src", "!benches"] {
        assert!(ignore.lines().any(|l| l == kept), ".dockerignore: {kept}");
    }
}

#[test]
fn the_examples_name_this_version() {
    let image = format!("lapwing:{}", env!("CARGO_PKG_VERSION"));
    assert!(read("examples/kubernetes-sidecar.yaml").contains(&format!("image: {image} ")));
    assert!(read("Dockerfile").contains(&format!("-t {image} ")));
}
