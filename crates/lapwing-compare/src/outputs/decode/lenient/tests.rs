//! What servers write and strict parsers refuse.

use super::*;

fn nodes(text: &[u8]) -> Vec<Node> {
    let document = Document::parse(text).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(text)));
    document.root().elements().unwrap().map(|value| value.node()).collect()
}

fn texts(text: &[u8]) -> Vec<String> {
    let document = Document::parse(text).unwrap();
    document.root().elements().unwrap().map(|value| value.text().unwrap().to_owned()).collect()
}

#[test]
fn words_of_numbers_that_are_not_finite() {
    for word in ["Infinity", "inf", "+inf", "INF", "1.#INF", "+Infinity"] {
        assert_eq!(nodes(format!("[{word}]").as_bytes()), [Node::Float(f64::INFINITY)], "{word}");
    }
    assert_eq!(nodes(b"[-Infinity, -inf,-1.#INF]"), [Node::Float(f64::NEG_INFINITY); 3]);
    for word in ["NaN", "nan", "-nan", "NAN", "-nan(ind)", "nan(snan)", "-1.#IND", "1.#QNAN"] {
        assert!(matches!(nodes(format!("[{word}]").as_bytes())[..], [Node::Float(n)] if n.is_nan()), "{word}");
    }
    assert_eq!(nodes(b"[None,True,FALSE,undefined]"), [Node::Null, Node::Bool(true), Node::Bool(false), Node::Null]);
}

#[test]
fn numbers_in_every_form() {
    let expected = [
        Node::Unsigned(1),
        Node::Float(0.5),
        Node::Float(5.0),
        Node::Unsigned(7),
        Node::Signed(-3),
        Node::Float(-0.0),
        Node::Float(1e30),
        Node::Float(0.0),
        Node::Unsigned(u64::MAX),
        Node::Signed(i64::MIN),
        Node::Float(18_446_744_073_709_551_616.0),
    ];
    let text = b"[+1,.5,5.,007,-3,-0,1e30,1e-999,18446744073709551615,-9223372036854775808,18446744073709551616]";
    assert_eq!(nodes(text), expected);
    // beyond doubles only the same digits are the same
    assert_eq!(texts(b"[1e400, -1e999999999]"), ["1e400", "-1e999999999"]);
}

#[test]
fn what_is_no_character_stays_different() {
    assert_eq!(texts(b"[\"a\\ud800b\",\"\\ud83d\\ude00\",\"\\udc00\"]"), ["a\u{fffd}d800b", "😀", "\u{fffd}dc00"]);
    assert_eq!(texts(b"[\"\xff\",\"\xfe\",\"a\x01\nb\"]"), ["\u{fffd}ff", "\u{fffd}fe", "a\u{1}\nb"]);
    assert_eq!(texts(br#"["\q\x41\u12","\/\"\\"]"#), [r"\q\x41\u12", "/\"\\"]);
    assert_eq!(texts(b"['it\\'s \"x\"']"), ["it's \"x\""]);
}

#[test]
fn what_stands_around_documents_and_between_them() {
    for text in ["\u{feff}[1,2]", "[1,2]\n\n", "\n[1,2]\0", "1 2", "1\n2\r\n", "\u{1e}1\n\u{1e}2\n", "[1,2,]", "[1\u{b},2]"] {
        assert_eq!(nodes(text.as_bytes()), [Node::Unsigned(1), Node::Unsigned(2)], "{text:?}");
    }
    let document = Document::parse(b"{\"a\":[1,{}]}{\"a\":[2]}\n[3]").unwrap();
    let parts: Vec<_> = document.root().elements().unwrap().collect();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[1].get("a").unwrap().elements().unwrap().next().unwrap().node(), Node::Unsigned(2));
    assert_eq!(parts[2].elements().unwrap().count(), 1);
}

#[test]
fn what_is_no_json_is_refused() {
    for text in ["", " ", "{", "[1", "[1}", "{1:2}", "{\"a\" 1}", "\"cut", "hello", "[1,,2]", "<html>", "1 x", "[1 2]", "--", "."]
    {
        assert!(Document::parse(text.as_bytes()).is_err(), "{text:?}");
    }
    let deep = |depth: usize| Document::parse(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
    assert!(deep(MAX_DEPTH).is_ok() && deep(MAX_DEPTH + 1).is_err());
    assert!(Document::parse("[".repeat(1 << 20).as_bytes()).unwrap_err().to_string().contains("deeper than 128"));
}

proptest::proptest! {
    #[test]
    fn standard_json_is_what_serde_reads(value in crate::outputs::tests::json_document()) {
        let document = Document::parse(value.to_string().as_bytes()).unwrap();
        proptest::prop_assert_eq!(as_serde(document.root()), value);
    }
}

fn as_serde(value: super::super::document::DocumentValue<'_>) -> serde_json::Value {
    match value.node() {
        Node::Null => serde_json::Value::Null,
        Node::Bool(is_true) => is_true.into(),
        Node::Unsigned(n) => n.into(),
        Node::Signed(n) => n.into(),
        Node::Float(n) => n.into(),
        Node::Text { .. } => value.text().unwrap().into(),
        Node::Array { .. } => value.elements().unwrap().map(as_serde).collect(),
        Node::Object { .. } => value.members().unwrap().map(|(key, member)| (key.to_owned(), as_serde(member))).collect(),
    }
}
