//! The list of known circles, and what is written of one.

use super::super::{Detail, KnownCircle, describe, differences, parse_known};
use super::{Circle, found};

/// One circle of a, b and c.
fn three() -> Vec<Circle> {
    found(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use super::b::B;\npub struct A;"),
        ("b.rs", "use super::c::{C, f, g};\npub struct B;"),
        ("c.rs", "use super::a::A;\nuse super::b::B;\npub struct C; pub fn f(_: A, _: B) {} pub fn g() {}"),
    ])
}

fn listed(text: &str) -> Vec<KnownCircle> {
    parse_known(text).unwrap()
}

#[test]
fn what_is_listed_and_exists_is_no_difference() {
    assert!(differences(&three(), &listed("# known\n\np crate: b a c\n")).is_empty());
    assert!(differences(&[], &[]).is_empty());
}

#[test]
fn a_circle_that_is_not_listed_is_told_with_its_uses() {
    for list in ["", "q crate: a b c\n", "p a: a b c\n"] {
        let said = differences(&three(), &listed(list));
        assert!(said[0].starts_with("a circle that is not known:\np crate: a b c\n"), "{said:?}");
        assert!(said[0].contains("src/c.rs:1"), "{said:?}");
    }
}

#[test]
fn a_circle_that_has_grown_is_not_known() {
    let said = differences(&three(), &listed("p crate: a b\n"));
    assert!(said[0].starts_with("a circle that is not known"), "{said:?}");
}

#[test]
fn what_is_gone_or_smaller_leaves_the_list() {
    let said = differences(&three(), &listed("p crate: a b c\np x: d e\n"));
    assert_eq!(said, ["no longer a circle, strike it off the list: \"p x: d e\""]);
    let said = differences(&three(), &listed("p crate: a b c d\n"));
    assert_eq!(said[0], "smaller than it is known to be, write \"p crate: a b c\" instead of \"p crate: a b c d\"");
    let said = differences(&three(), &listed("p crate: a b c\np crate: a b c\n"));
    assert_eq!(said, ["listed twice: \"p crate: a b c\""]);
}

#[test]
fn a_line_that_is_no_circle_is_an_error() {
    for line in ["p crate a b", "p: a b", "p crate: a", "p crate: "] {
        assert!(parse_known(&format!("# x\n{line}\n")).unwrap_err().starts_with("line 2: "), "{line}");
    }
}

#[test]
fn a_circle_is_written_with_what_to_cut_first() {
    let circle = &three()[0];
    assert_eq!(
        describe(circle, Detail::Cuts),
        "p crate: a b c\n  3 modules, 4 edges; without 2 of them (2 items, 3 uses) it is none\n  \
         cut  a -> b: 1 uses of B (src/a.rs:1)\n  cut  c -> b: 2 uses of B (src/c.rs:2)\n"
    );
    assert!(
        describe(circle, Detail::Edges).contains("  keep b -> c: 3 uses of C (src/b.rs:1), f (src/b.rs:1), g (src/b.rs:1)\n")
    );
    assert!(
        describe(circle, Detail::Places).contains("  keep c -> a: 2 uses of A\n         A src/c.rs:1\n         A src/c.rs:3\n")
    );
}
