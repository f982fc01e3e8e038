//! No crate of the workspace has a circle of modules but those listed in `circles.txt`, a list that only becomes shorter.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use lapwing_testing::circles::{differences, of_workspace, parse_known};

#[test]
fn modules_form_no_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let known = parse_known(include_str!("circles.txt")).unwrap();
    let said = differences(&of_workspace(&root).unwrap(), &known);
    assert!(said.is_empty(), "{}\n(crates/lapwing-testing/src/circles says what a circle is)", said.join("\n"));
}
