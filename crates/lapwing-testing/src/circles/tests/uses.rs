//! Every form in which one module uses another.

use super::{circles, found};

const LIB: &str = "pub mod a;\npub mod b;\npub mod c;\npub mod d;\npub use b::Open;\npub use b::Open as Renamed;\npub use c::Passed;\npub use b::star::*;\n";
/// Uses `a`, and so is in a circle with it if `a` uses it.
const B: &str = "
    pub struct B; pub enum E { X } pub trait T {} pub const MAX: u8 = 1; pub static ONE: u8 = 1; pub struct Open; pub struct Deep;
    pub mod star { pub struct Star; }
    pub fn f() -> u8 { 1 }
    pub(crate) use counted;
    #[macro_export] macro_rules! exported { () => {} }
    macro_rules! counted { () => {} }
    make! { pub struct Made; }
    fn uses(_: crate::a::A) {}
";
const C: &str = "pub use crate::b::Deep as Passed;";

fn with(a: &str) -> Vec<String> {
    circles(&[("lib.rs", LIB), ("a.rs", &format!("pub struct A;\n{a}")), ("b.rs", B), ("c.rs", C), ("d.rs", "pub struct D;")])
}

#[test]
fn a_use_is_seen_in_every_form() {
    let forms = [
        // imports
        "use super::b::B;",
        "use crate::b::B;",
        "use crate::{b::B};",
        "use super::{d::D, b::{E, B as Other}};",
        "use crate::{self as root, b::{self, f}};",
        "use super::b::*;",
        "use crate::b::E::{self, X};",
        "use crate::b::T as _;",
        "fn local() { use super::b::B; }",
        "mod inner { use super::super::b::B; }",
        "mod inner { mod more { fn f() { crate::b::f(); } } }",
        // through a name that is imported
        "use super::b; fn f() { b::f(); }",
        "use crate::b as other; fn f() { other::f(); }",
        "fn g() { use super::b as other; other::f(); }",
        "use super::*; fn f() { b::f(); }",
        "use super::*; fn f(_: Open) {}",
        // re-exported elsewhere
        "use crate::Open;",
        "use super::Renamed;",
        "fn f(_: super::Open) {}",
        "fn f(_: crate::Passed) {}",
        "use crate::c::Passed;",
        "use crate::Star;",
        "pub use crate::b::B;",
        "pub(crate) use super::b::B;",
        // in types, bounds, expressions and patterns
        "fn f(_: super::b::B) {}",
        "struct S { b: Vec<Option<crate::b::B>> }",
        "struct S<X: super::b::T>(X);",
        "fn f<X>() where X: super::b::T {}",
        "fn f() -> Box<dyn super::b::T> { loop {} }",
        "fn f(_: impl crate::b::T) {}",
        "impl super::b::T for A {}",
        "impl super::b::B { fn new() {} }",
        "impl A { fn f() -> u8 { super::b::f() } }",
        "trait Own: super::b::T {}",
        "type Own = [u8; super::b::MAX as usize];",
        "const OWN: u8 = crate::b::ONE;",
        "fn f(e: u8) { match e { super::b::MAX => {} _ => {} } }",
        "fn f() { let _ = <crate::b::B as Default>::default(); }",
        "fn f() { let _ = <A as crate::b::T>::X; }",
        "fn f() { let g = || crate::b::f; }",
        "fn f() { let _ = crate::b::B { }; }",
        "fn f() { if let super::b::E::X = e() {} }",
        // in tokens
        "fn f() { println!(\"{}\", crate::b::f()); }",
        "fn f() { assert!(x == super::b::MAX, \"{}\", y); }",
        "fn f() { vec![super::b::f(); 3]; }",
        "fn f() { m! { a { x: [1, super::b::f()] } } }",
        "fn f() { for_each!(0..super::b::MAX); }",
        "macro_rules! own { ($x:expr) => { $crate::b::f($x) }; }",
        "macro_rules! own { () => { use crate::b::{B as C, f}; }; }",
        "#[serde(with = \"crate::b\", default = \"crate::b::f\")] struct S;",
        "struct S { #[serde(serialize_with = \"super::b::f\")] x: u8 }",
        "struct S { #[arg(value_parser = super::b::f)] x: u8 }",
        // macros, and what they make
        "fn f() { crate::b::counted!(); }",
        "use crate::b::counted;",
        "crate::exported!();",
        "use crate::b::Made;",
        "fn f(_: super::b::Made) {}",
        // behind any cfg but that of tests
        "#[cfg(feature = \"x\")] use super::b::B;",
        "#[cfg(not(test))] use super::b::B;",
        "#[cfg(any(test, feature = \"x\"))] use super::b::B;",
        // a raw name
        "use super::r#b::B;",
    ];
    for form in forms {
        assert_eq!(with(form), ["p crate: a b"], "{form}");
    }
}

#[test]
fn a_use_of_nothing_is_no_circle() {
    assert_eq!(with("").len(), 0);
}

#[test]
fn a_name_that_two_configurations_give_stands_for_both() {
    let root = "pub mod a;\npub mod without;\n#[cfg(feature = \"x\")] pub mod with;\n#[cfg(not(feature = \"x\"))] pub use without as with;";
    let other = "use crate::a::A; pub struct W;";
    let files = [("lib.rs", root), ("a.rs", "pub struct A; use crate::with::W;"), ("with.rs", other), ("without.rs", other)];
    assert_eq!(circles(&files), ["p crate: a with without"]);
}

#[test]
fn a_macro_of_the_parent_is_used_without_a_path() {
    let files =
        [("lib.rs", "macro_rules! shared { () => {} }\nmod a;\nfn f() { a::f(); }"), ("a.rs", "pub fn f() { shared!(); }")];
    assert_eq!(circles(&files), ["p crate: a self"]);
}

#[test]
fn an_edge_says_where_its_uses_are() {
    let a = "pub struct A;\nuse super::b::{\n    B, f};\nfn g() -> B {\n    f();\n    loop {}\n}\n";
    let files = [("lib.rs", "mod a;\nmod b;"), ("a.rs", a), ("b.rs", "use crate::a::A; pub struct B; pub fn f() {}")];
    let circle = &found(&files)[0];
    let edge = circle.edges.iter().find(|edge| edge.from == "a").unwrap();
    let places: Vec<_> =
        edge.items.iter().map(|(item, at)| (item.as_str(), at.iter().map(|p| p.line).collect::<Vec<_>>())).collect();
    assert_eq!(places, [("B", vec![3, 4]), ("f", vec![3, 5])]);
    assert_eq!(edge.uses(), 4);
    assert_eq!(edge.items["B"][0].file.to_str(), Some("src/a.rs"));
}
