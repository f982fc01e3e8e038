//! Checks that what ships with the code agrees with it: the image's toolchain and context, and the versions in the examples.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// What the README begins with is an alias, whose profile is there.
#[test]
fn the_first_command_is_an_alias_of_the_demo() {
    let alias = r#"demo = "run --locked --profile demo --no-default-features --features engine -- demo""#;
    assert!(read(".cargo/config.toml").contains(alias));
    assert!(read("Cargo.toml").contains("\n[profile.demo]\n"));
    assert!(read("README.md").contains("```sh\ncargo demo --seconds 15\n```"));
}

/// The folders whose code is built into the binary.
const SOURCES: [&str; 2] = ["src", "crates"];

/// `path` without its `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut parts = Vec::new();
    for part in path.components() {
        if part == Component::ParentDir {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.into_iter().collect()
}

/// Paths that the code includes, relative to the package, outside of test modules' own files.
fn included() -> Vec<PathBuf> {
    let mut todo = SOURCES.map(PathBuf::from).to_vec();
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(root.join(&at)).unwrap() {
            let path = at.join(entry.unwrap().file_name());
            if root.join(&path).is_dir() {
                if !path.ends_with("tests") {
                    todo.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") && !path.to_string_lossy().ends_with("tests.rs") {
                let text = fs::read_to_string(root.join(&path)).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap_or("");
                for at in code.match_indices("include_").map(|(at, _)| at) {
                    if let Some(name) = code[at..].lines().next().and_then(|l| l.split('"').nth(1)) {
                        found.push(resolved(&path.parent().unwrap().join(name)));
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
    assert!(dockerfile.contains("cargo build --profile dist --locked"));
    assert!(dockerfile.contains("USER 65532:65532"));
    for workflow in [".github/workflows/ci.yaml", ".github/workflows/release.yaml"] {
        assert!(read(workflow).contains(&format!("rust:{channel}-")), "{workflow}: not rust {channel}");
    }
}

/// What the tests compare with is what the image brings.
#[test]
fn the_image_has_the_onnx_runtime_of_the_tests() {
    let requirements = read("tests/requirements.txt");
    let wanted = requirements.lines().find(|l| l.starts_with("onnxruntime==")).unwrap();
    assert!(read("Dockerfile").contains(&format!("'{wanted}'")), "Dockerfile: not {wanted}");
}

/// The release is made by what the tests test.
#[test]
fn the_release_has_the_tools_of_the_tests() {
    let workflow = read(".github/workflows/release.yaml");
    for (script, variable, tool) in [("tests/image/run", "SBOM_TOOL", "cargo-cyclonedx"), ("tests/run", "CARGO_DEB", "cargo-deb")]
    {
        let version = read(script).lines().find_map(|l| l.strip_prefix(&format!("{variable}="))).unwrap().to_owned();
        assert!(workflow.contains(&format!("cargo install --locked {tool}@{version}\n")), "{tool} {version}");
    }
}

/// What crates.io asks of a crate, and what it would refuse: `deploy/release crates` builds each as it would be published.
#[test]
fn the_crates_can_be_published() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let metadata: serde_json::Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let is_published = |package: &&serde_json::Value| package["publish"].is_null();
    let published: Vec<&str> = packages.iter().filter(is_published).map(|p| p["name"].as_str().unwrap()).collect();
    let kept: Vec<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).filter(|n| !published.contains(n)).collect();
    assert_eq!(kept, ["lapwing-testing"]);
    let same = format!("^{}", env!("CARGO_PKG_VERSION"));
    for package in packages.iter().filter(is_published) {
        let name = &package["name"];
        for field in ["description", "license", "homepage", "readme", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        assert_eq!(package["version"], env!("CARGO_PKG_VERSION"), "{name}");
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|d| d["path"].is_string()) {
            let of = &dependency["name"];
            if published.iter().any(|p| of == p) {
                assert_eq!(dependency["req"], same.as_str(), "{name} depends on {of}");
            } else {
                // left out of what is published, because it has no version
                assert_eq!((&dependency["kind"], &dependency["req"]), (&"dev".into(), &"*".into()), "{name} depends on {of}");
            }
        }
    }
}

#[test]
fn what_the_code_includes_is_in_the_images_context() {
    let included = included();
    assert!(included.iter().any(|p| p.ends_with("attention.ptx")), "{included:?}");
    for path in included {
        assert!(
            path.starts_with("src") || path.starts_with("crates"),
            "{} is neither below src nor below crates",
            path.display()
        );
    }
    let ignore = read(".dockerignore");
    for kept in ["*", "!.cargo", "!Cargo.toml", "!Cargo.lock", "!src", "!crates", "!benches", "!build.rs", "!tests/ports.py"] {
        assert!(ignore.lines().any(|l| l == kept), ".dockerignore: {kept}");
    }
}

#[test]
fn the_wheel_is_built_as_the_image_is() {
    let project = read("pyproject.toml");
    for line in ["bindings = \"bin\"", "profile = \"dist\"", "locked = true"] {
        assert!(project.lines().any(|l| l == line), "pyproject.toml: {line}");
    }
    assert!(read("Cargo.toml").contains("\n[profile.dist]\n"));
}

#[test]
fn the_examples_name_this_version() {
    let image = format!("lapwing:{}", env!("CARGO_PKG_VERSION"));
    assert!(read("examples/kubernetes-sidecar.yaml").contains(&format!("image: {image} ")));
    assert!(read("Dockerfile").contains(&format!("-t {image} ")));
    assert!(read("deploy/kustomize/component/workload.yaml").contains(&format!("image: {image}\n")));
    let chart = read("deploy/charts/lapwing/Chart.yaml");
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        assert!(chart.lines().any(|l| l == line), "Chart.yaml: {line}");
    }
    let package = format!("{}-1", env!("CARGO_PKG_VERSION"));
    assert!(read("deploy/debian/changelog").starts_with(&format!("lapwing ({package}) ")));
    assert!(read("docs/OPERATIONS.md").contains(&format!("lapwing_{package}_amd64.deb")));
}

/// The fenced blocks of a language in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    document.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

#[test]
fn the_configuration_in_the_documentation_is_sound() {
    #[derive(serde::Deserialize)]
    struct File {
        attribution: lapwing_attribution::Config,
    }
    let blocks = blocks(&read("docs/REPORTING.md"), "yaml");
    let [cache_hit, mapping] = blocks.as_slice() else { panic!("{} blocks", blocks.len()) };
    let [cache_hit, mapping] = [cache_hit, mapping].map(|block| {
        let File { attribution } = serde_saphyr::from_str(block).unwrap();
        let mut checks = lapwing_settings::Checks::default();
        lapwing_settings::Section::check(&attribution, &mut checks);
        let faults = checks.into_faults();
        assert!(faults.is_empty(), "{faults:?}");
        attribution
    });
    assert!(cache_hit.cache_hit.span_attribute.on().is_some() && cache_hit.cache_hit.header.on().is_some());
    assert_eq!((mapping.server_timing.len(), mapping.spans.len()), (2, 4));
}

#[test]
fn the_sidecars_manifest_is_yaml_and_exposes_lapwing_only() {
    use serde_json::Value;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&read("examples/kubernetes-sidecar.yaml")).unwrap();
    let pod = &documents[0]["spec"]["template"]["spec"];
    let sidecar = &pod["initContainers"][0];
    assert_eq!(sidecar["restartPolicy"], "Always");
    assert_eq!(sidecar["startupProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(sidecar["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(pod["containers"][0].get("ports"), None);
    // by its number: before Kubernetes 1.33 a Service does not find a sidecar's port by its name
    assert_eq!(documents[1]["spec"]["ports"][0]["targetPort"], sidecar["ports"][0]["containerPort"]);
}
