//! What is read: whole packages, or an error.

use std::fs;

use super::super::{of_workspace, packages};
use super::{circles, known, refused};

#[test]
fn a_file_that_no_module_declares_is_an_error() {
    let error = refused(&[("lib.rs", "mod a;"), ("a.rs", ""), ("a/lost.rs", "")]);
    assert!(error.starts_with("no `mod` that can be read declares ") && error.ends_with("/src/a/lost.rs"), "{error}");
    // of tests, it is none
    assert!(
        circles(&[("lib.rs", "#[cfg(test)] mod a;\n#[cfg(test)] mod b;"), ("a.rs", ""), ("b/mod.rs", ""), ("b/c/d.rs", "")])
            .is_empty()
    );
}

#[test]
fn a_module_that_cannot_be_read_is_an_error() {
    assert!(refused(&[("lib.rs", "mod gone;")]).contains("src/gone/mod.rs: "));
    assert!(refused(&[("lib.rs", "mod a;"), ("a.rs", "fn f() {}\nfn g( {}")]).contains("src/a.rs:2: "));
    assert!(refused(&[("lib.rs", "\n#[path = \"b.rs\"] mod a;"), ("b.rs", "")]).contains("src/lib.rs:2: #[path]"));
}

#[test]
fn a_workspace_is_read_by_its_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let package = |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n");
    write("Cargo.toml", &format!("{}[workspace]\nmembers = [\"crates/*\"]\n", package("top")));
    write("src/lib.rs", "");
    // a binary beside a library is a crate of its own
    write("src/main.rs", "mod only;\nmod other;\nfn main() {}");
    write("src/only.rs", "use crate::other::B; pub struct A;");
    write("src/other.rs", "use crate::only::A; pub struct B;");
    write("crates/tool/Cargo.toml", &package("tool"));
    write("crates/tool/src/main.rs", "fn main() { helper::f(); }\nmod helper;\nstruct Own;");
    write("crates/tool/src/helper.rs", "pub fn f(_: super::Own) {}");
    write("crates/lone/Cargo.toml", &format!("{}[lib]\npath = \"src/other_name.rs\"\n", package("lone")));
    write("crates/lone/src/other_name.rs", "");

    let names: Vec<_> = packages(folder.path()).unwrap().iter().flat_map(|p| &p.crates).map(|t| t.name.clone()).collect();
    assert_eq!(names, ["lone", "tool", "top", "top/bin/top"]);
    let found: Vec<_> = of_workspace(folder.path()).unwrap().iter().map(|circle| known(circle).to_string()).collect();
    assert_eq!(found, ["tool crate: helper self", "top/bin/top crate: only other"]);
    assert!(packages(&folder.path().join("nowhere")).is_err());
}
