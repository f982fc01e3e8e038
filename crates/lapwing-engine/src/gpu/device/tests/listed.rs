//! Compares the lists of library functions with the sources: calling a function that is not listed would panic on a
//! library that lacks it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::super::lt::library::NEEDED as NEEDED_OF_LT;
use super::super::symbols::{FIRST, NEEDED, OPTIONAL};

/// Functions that cudarc's context calls: create, make current, drop.
const BY_CUDARC: &[&str] = &["cuCtxGetCurrent", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"];

/// The functions with this prefix that the sources in a folder call through `sys::`.
fn called(folder: &str, begin: &str) -> BTreeSet<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file!());
    let folder = here.parent().and_then(Path::parent).unwrap().join(folder);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut called = BTreeSet::new();
    for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
        let text = fs::read_to_string(file).unwrap();
        for piece in text.split(&format!("sys::{begin}")).skip(1) {
            let rest: String = piece.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if piece[rest.len()..].starts_with('(') && rest.starts_with(|c: char| c.is_ascii_uppercase()) {
                called.insert(format!("{begin}{rest}"));
            }
        }
    }
    called
}

fn set<'a>(names: impl Iterator<Item = &'a &'a str>) -> BTreeSet<String> {
    names.map(ToString::to_string).collect()
}

#[test]
fn every_function_of_the_driver_is_looked_up_before() {
    let mut all = called("", "cu");
    all.extend(set(BY_CUDARC.iter()));
    assert_eq!(all, set(FIRST.iter().chain(NEEDED).chain(OPTIONAL)));
    // the other folder calls none
    assert_eq!(called("lt", "cu"), BTreeSet::new());
}

#[test]
fn every_function_of_cublaslt_is_looked_up_before() {
    assert_eq!(called("lt", "cublasLt"), set(NEEDED_OF_LT.iter()));
}
