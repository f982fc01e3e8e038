//! At which level a use counts, and which uses are to be cut.

use super::{circles, found};

#[test]
fn siblings_by_super_form_a_circle() {
    let files =
        [("lib.rs", "mod a;\nmod b;"), ("a.rs", "use super::b::B; pub struct A;"), ("b.rs", "use super::a::A; pub struct B;")];
    assert_eq!(circles(&files), ["p crate: a b"]);
}

#[test]
fn a_parent_by_self_forms_a_circle_with_its_child() {
    let files = [("lib.rs", "mod a;\nuse self::a::A;\npub struct Root;"), ("a/mod.rs", "use crate::Root; pub struct A;")];
    assert_eq!(circles(&files), ["p crate: a self"]);
}

#[test]
fn a_circle_two_levels_deep_is_one_of_its_level() {
    let files = [
        ("lib.rs", "mod p;"),
        ("p/mod.rs", "mod q;"),
        ("p/q/mod.rs", "mod x;\nmod y;\nmod z;"),
        ("p/q/x.rs", "use super::y::Y; pub struct X;"),
        ("p/q/y.rs", "pub struct Y(super::z::Z);"),
        ("p/q/z.rs", "pub struct Z(Box<crate::p::q::x::X>);"),
    ];
    assert_eq!(circles(&files), ["p p::q: x y z"]);
}

#[test]
fn a_module_stands_for_all_below_it() {
    // no two files use each other
    let files = [
        ("lib.rs", "mod p;\nmod q;"),
        ("p/mod.rs", "pub mod x;\npub mod y;"),
        ("p/x.rs", "use crate::q::v::V;"),
        ("p/y.rs", "pub struct Y;"),
        ("q/mod.rs", "pub mod v;\npub mod w;"),
        ("q/v.rs", "pub struct V;"),
        ("q/w.rs", "use crate::p::y::Y;"),
    ];
    assert_eq!(circles(&files), ["p crate: p q"]);
}

#[test]
fn a_use_counts_at_one_level_only() {
    // x and y are below p; that one of them uses q, which uses the other, is no circle of theirs
    let files = [
        ("lib.rs", "mod p;\nmod q;"),
        ("p/mod.rs", "pub mod x;\npub mod y;"),
        ("p/x.rs", "use super::y::Y; pub struct X;"),
        ("p/y.rs", "use crate::q::Q; pub struct Y;"),
        ("q.rs", "use crate::p::x::X; pub struct Q;"),
    ];
    assert_eq!(circles(&files), ["p crate: p q"]);
}

#[test]
fn a_grandparent_is_used_at_its_own_level() {
    let files = [
        ("lib.rs", "mod p;"),
        ("p/mod.rs", "mod q;\npub struct Own;\nfn f() { q::f(); }"),
        ("p/q/mod.rs", "mod x;\npub fn f() {}"),
        ("p/q/x.rs", "use super::super::Own;"),
    ];
    assert_eq!(circles(&files), ["p p: q self"]);
}

#[test]
fn two_circles_of_one_level_are_two() {
    let root = "mod a;\nmod b;\nmod c;\nmod d;\nmod e;";
    let files = [
        ("lib.rs", root),
        ("a.rs", "use super::b::X; use super::c::X as Y; pub struct X;"),
        ("b.rs", "use super::a::X as Y; pub struct X;"),
        ("c.rs", "use super::d::X as Y; pub struct X;"),
        ("d.rs", "use super::c::X as Y; use super::e::X as Z; pub struct X;"),
        ("e.rs", "pub struct X;"),
    ];
    assert_eq!(circles(&files), ["p crate: a b", "p crate: c d"]);
}

#[test]
fn inline_modules_belong_to_their_file() {
    let root = "mod a;\nmod inner { pub struct In; pub(crate) mod deep; use super::a::A; }\npub struct Out;";
    let files =
        [("lib.rs", root), ("a.rs", "use crate::inner::In; pub struct A;"), ("inner/deep.rs", "use super::In; use crate::Out;")];
    assert_eq!(circles(&files), ["p crate: a self"]);
}

#[test]
fn the_fewest_items_are_cut() {
    // b needs three items of a, and a one of b, in many places
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "use super::b::X;\nfn f(_: X, _: X, _: X, _: X) {}\npub struct A; pub struct B; pub struct C;"),
        ("b.rs", "use super::a::{A, B, C}; pub struct X;"),
    ];
    let cut: Vec<_> =
        found(&files)[0].edges.iter().filter(|edge| edge.is_cut).map(|edge| (edge.from.clone(), edge.to.clone())).collect();
    assert_eq!(cut, [("a".to_owned(), "b".to_owned())]);
}
