//! What looks like a circle and is none.

use super::circles;

/// `b` uses `a`; these are texts of `a`, which does not use `b`.
#[test]
fn what_is_no_use() {
    let texts = [
        // of tests
        "#[cfg(test)] use super::b::B;",
        "#[cfg(test)] mod tests { use super::super::b::B; }",
        "#[cfg(test)] mod tests;",
        "#[cfg(all(test, feature = \"x\"))] mod tests { use crate::b::B; }",
        "impl A { #[cfg(test)] fn f(_: crate::b::B) {} }",
        "struct S { #[cfg(test)] b: crate::b::B }",
        "fn f() { #[cfg(test)] crate::b::f!(); #[cfg(test)] let x = crate::b::f(); }",
        // text
        "/// [`crate::b::B`]\nstruct S;",
        "#[doc = \"crate::b\"] fn f() { log(\"crate::b::f\"); } // crate::b::f()",
        // another crate's
        "use ::b::B;",
        "fn f(_: ::b::B) {}",
        "fn f() { b::f(); }",
        "fn g() { m!(::b::f()); }",
        // who may see it
        "pub(crate) struct S;",
        // no path to it
        "use crate::B as _; fn f<B>(b: B) -> B::Out { b }",
        "use crate::*; fn g(f: u8) -> u8 { let x = f; S { f }; m!(x.f, f = 1, f: 2); f }",
        "use crate::*; fn g() { let f = 1; m!(f + 1); }",
        "use crate::*; fn g(x: S) { x.f(); x.f; S { f: 1 }; }",
        "macro_rules! own { ($f:ident) => { $f }; }",
        // the import of a module by itself
        "use crate::b;",
        // what its own file has
        "pub struct B; fn f(_: B, _: self::B, _: super::a::B) {}",
        "pub fn f() {} fn g() { f(); self::f(); }",
    ];
    for text in texts {
        let root = "pub mod a;\npub mod b;\nuse extern_crate::B;\npub use b::f;";
        let b = "use crate::a::A; pub struct B; pub fn f() {}";
        let files =
            [("lib.rs", root), ("a.rs", &format!("pub struct A;\n{text}")), ("b.rs", b), ("a/tests.rs", "use crate::b::B;")];
        let count = if text.contains("mod tests;") { 4 } else { 3 };
        assert!(circles(&files[..count]).is_empty(), "{text}");
    }
}

#[test]
fn a_parent_may_declare_and_re_export_what_uses_it() {
    let child = "use super::Own; pub struct X; pub fn f(_: Own) {}";
    for export in
        ["", "pub use child::X;", "pub(crate) use self::child::{X, f as g};", "pub use child::*;", "pub use crate::p::child::X;"]
    {
        let parent = format!("pub mod child;\n{export}\npub struct Own;");
        assert!(circles(&[("lib.rs", "pub mod p;"), ("p/mod.rs", &parent), ("p/child.rs", child)]).is_empty(), "{export}");
    }
    for used in
        ["use child::X;", "pub use child::X; fn f(_: X) {}", "fn f() { child::f(Own); }", "fn f() { self::child::f(Own); }"]
    {
        let parent = format!("pub mod child;\n{used}\npub struct Own;");
        let found = circles(&[("lib.rs", "pub mod p;"), ("p/mod.rs", &parent), ("p/child.rs", child)]);
        assert_eq!(found, ["p p: child self"], "{used}");
    }
}

#[test]
fn a_re_export_hides_no_direction() {
    // both go through the root's names, in one direction only
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\npub use b::B;\npub use c::C;"),
        ("a.rs", "pub struct A;"),
        ("b.rs", "use crate::A; pub struct B;"),
        ("c.rs", "use crate::{A, B}; pub struct C;"),
    ];
    assert!(circles(&files).is_empty());
}

#[test]
fn a_module_named_on_the_way_is_not_used() {
    // the way from x to y goes through p, which uses x
    let files = [
        ("lib.rs", "pub mod p;"),
        ("p/mod.rs", "pub mod x;\npub mod y;\npub use y::Y;\nfn f() { x::f(); }"),
        ("p/x.rs", "use crate::p; use p::y; pub fn f(_: y::Y, _: p::Y, _: p::y::Y) {}"),
        ("p/y.rs", "pub struct Y;"),
    ];
    assert!(circles(&files).is_empty());
}

#[test]
fn imports_that_lead_to_themselves_end() {
    let files = [
        ("lib.rs", "pub mod a;\npub mod b;\nuse serde;\nuse tracing::{self, info};"),
        (
            "a.rs",
            "pub use super::b::*; pub use crate::b::Nothing; use super::serde::De; fn f(_: Unknown, _: Nothing) { tracing::f(); }",
        ),
        ("b.rs", "pub(self) use serde::Nothing; fn f() { crate::tracing::f(); }"),
    ];
    assert!(circles(&files).is_empty());
    let files =
        [("lib.rs", "mod a;\nmod b;"), ("a.rs", "pub use super::b::*;"), ("b.rs", "pub use super::a::*; fn f(_: Unknown) {}")];
    assert!(circles(&files).is_empty());
}
