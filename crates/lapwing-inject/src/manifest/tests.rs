//! Texts before and after changes.

use serde_json::{Value, json};

use super::*;

fn edited(text: &str, edits: &[Edit]) -> Result<String, ManifestError> {
    let edits: Vec<(usize, Edit)> = edits.iter().map(|edit| (0, edit.clone())).collect();
    Manifest::read(text)?.edited(&edits).map(|made| made.text().to_owned())
}

fn add(path: &str, value: &Value) -> Edit {
    Edit::add(&path.split(' ').collect::<Vec<_>>(), value).unwrap()
}

fn replace(path: &str, value: &Value) -> Edit {
    Edit::replace(&path.split(' ').collect::<Vec<_>>(), value).unwrap()
}

fn remove(path: &str) -> Edit {
    Edit::remove(&path.split(' ').collect::<Vec<_>>())
}

/// What is added stands as what is beside it, and its removal gives the text back.
fn there_and_back(before: &str, there: &Edit, after: &str, back: &Edit) {
    assert_eq!(edited(before, std::slice::from_ref(there)).as_deref(), Ok(after));
    assert_eq!(edited(after, std::slice::from_ref(back)).as_deref(), Ok(before));
}

#[test]
fn an_item_comes_behind_the_last_with_its_columns() {
    let before = "\
# head
spec:   # all
    containers:
    - name: a # first
      args: [x,
             y]
      # done
    # after
    volumes: []
";
    let after = "\
# head
spec:   # all
    containers:
    - name: a # first
      args: [x,
             y]
    - image: i
      ports:
      - 1
      # done
    # after
    volumes: []
";
    there_and_back(before, &add("spec containers -", &json!({"image": "i", "ports": [1]})), after, &remove("spec containers 1"));
    // indented under its key, behind a block of text
    let before = "a:\n  - |\n    one\n\n    two\n\n  # tail\nb: 1";
    there_and_back(before, &add("a -", &json!("x")), "a:\n  - |\n    one\n\n    two\n  - x\n\n  # tail\nb: 1", &remove("a 1"));
    // text that keeps its last empty lines
    let before = "a:\n  - |+\n    one\n\nb: 1\n";
    there_and_back(before, &add("a -", &json!(7)), "a:\n  - |+\n    one\n\n  - 7\nb: 1\n", &remove("a 1"));
}

#[test]
fn a_key_comes_behind_the_last() {
    let before = "metadata:\n  labels: {a: b}\n  annotations:\n    one: \"1\"\n\nspec: {}\n";
    let after = "metadata:\n  labels: {a: b}\n  annotations:\n    one: \"1\"\n    lapwing.dev/x: \"2\"\n\nspec: {}\n";
    there_and_back(
        before,
        &add("metadata annotations lapwing.dev/x", &json!("2")),
        after,
        &remove("metadata annotations lapwing.dev/x"),
    );
    // a value that is a collection, behind one without a value, without an end of line
    let before = "metadata:\n  name:   # none";
    let after = "metadata:\n  name:   # none\n  annotations:\n    a: b\n    c:\n    - 1\n    - d: {}";
    assert_eq!(edited(before, &[add("metadata annotations", &json!({"a": "b", "c": [1, {"d": {}}]}))]).as_deref(), Ok(after));
}

#[test]
fn what_is_empty_gets_the_style_of_what_it_is_in() {
    for empty in ["{}", "", "~", "null"] {
        let before = format!("metadata:\n  annotations: {empty}\nspec: 1\n");
        let made = edited(&before, &[add("metadata annotations a", &json!("b"))]);
        assert_eq!(made.as_deref(), Ok("metadata:\n  annotations:\n    a: b\nspec: 1\n"), "{empty}");
    }
    let made = edited("spec:\n  list: []  # none\n", &[add("spec list -", &json!({"a": 1}))]);
    assert_eq!(made.as_deref(), Ok("spec:\n  list:  # none\n  - a: 1\n"));
    assert_eq!(edited("{\"a\": {\"b\": []}}", &[add("a b -", &json!({"c": 1}))]).as_deref(), Ok("{\"a\": {\"b\": [{\"c\":1}]}}"));
    // and gives it back
    let made = edited("spec:\n  list:\n  - a: 1\n", &[replace("spec list", &json!([]))]);
    assert_eq!(made.as_deref(), Ok("spec:\n  list: []\n"));
}

#[test]
fn flow_style_and_json_stay_so() {
    let before = "a: {b: [1, 2], c: d} # x\n";
    there_and_back(before, &add("a b -", &json!({"e": "f"})), "a: {b: [1, 2, {\"e\":\"f\"}], c: d} # x\n", &remove("a b 2"));
    there_and_back(before, &add("a g", &json!(1)), "a: {b: [1, 2], c: d, \"g\": 1} # x\n", &remove("a g"));
    assert_eq!(edited("a: [1, 2, ]\n", &[add("a -", &json!(3))]).as_deref(), Ok("a: [1, 2, 3 ]\n"));
    let before = "{\n    \"a\": [\n        {\n            \"b\": \"/\"\n        }\n    ],\n    \"c\": {\"d\": 1}\n}\n";
    let after = "{\n    \"a\": [\n        {\n            \"b\": \"/\"\n        },\n        {\n            \"x\": [\n                1\n            ],\n            \"y\": {}\n        }\n    ],\n    \"c\": {\"d\": 1}\n}\n";
    there_and_back(before, &add("a -", &json!({"x": [1], "y": {}})), after, &remove("a 1"));
    serde_json::from_str::<Value>(after).unwrap();
}

#[test]
fn a_scalar_is_replaced_in_its_place() {
    let before = "a:\n- port: 8000 # http\n  'name': \"http\"\n";
    assert_eq!(edited(before, &[replace("a 0 port", &json!(9))]).as_deref(), Ok("a:\n- port: 9 # http\n  'name': \"http\"\n"));
    assert_eq!(edited(before, &[replace("a 0 name", &json!("x"))]).as_deref(), Ok("a:\n- port: 8000 # http\n  'name': \"x\"\n"));
}

#[test]
fn several_documents_and_ends_of_lines_stay() {
    let text = "---\r\na:\r\n- 1\r\n---\r\n# second\r\na:\r\n- 2\r\n...\r\n";
    let edits = [(0, add("a -", &json!(3))), (1, add("a -", &json!(4)))];
    let made = Manifest::read(text).unwrap().edited(&edits).unwrap();
    assert_eq!(made.text(), "---\r\na:\r\n- 1\r\n- 3\r\n---\r\n# second\r\na:\r\n- 2\r\n- 4\r\n...\r\n");
    // two at one place, in their order
    let made = edited("a:\n- 1\n", &[add("a -", &json!(2)), add("a -", &json!(3))]);
    assert_eq!(made.as_deref(), Ok("a:\n- 1\n- 2\n- 3\n"));
}

#[test]
fn what_stands_elsewhere_is_not_changed() {
    let text = "x: &x {a: 1}\ny: *x\nz:\n  <<: *x\n";
    for path in ["y b", "z a"] {
        let edit = if path == "z a" { replace(path, &json!(2)) } else { add(path, &json!(2)) };
        let fault = edited(text, &[edit]).unwrap_err();
        assert!(matches!(fault, ManifestError::Shared(_)), "{path}: {fault}");
    }
    assert_eq!(Manifest::read(text).unwrap().values().next(), Some(&json!({"x": {"a": 1}, "y": {"a": 1}, "z": {"a": 1}})));
    let fault = edited(text, &[remove("q")]).unwrap_err();
    assert_eq!(fault.to_string(), "nothing is at /q");
}

#[test]
fn hostile_texts_have_bounds() {
    let laughs: String = (0..12)
        .map(|at| {
            if at == 0 {
                "a0: &a0 [1,1,1,1,1,1,1,1]\n".to_owned()
            } else {
                format!("a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 8].join(","))
            }
        })
        .collect();
    assert_eq!(Manifest::read(&laughs).unwrap_err(), ManifestError::TooManyNodes(1_000_000));
    for text in [
        "[".repeat(100_000),
        "- ".repeat(100_000),
        "{a: ".repeat(50_000),
        "a: &a [*a]".to_owned(),
        "\0".to_owned(),
        "a: b\na: c".to_owned(),
    ] {
        assert!(Manifest::read(&text).is_err(), "{}", &text[..10.min(text.len())]);
    }
    assert!(Manifest::read("").unwrap().values().next().is_none());
}

#[test]
fn scalars_are_what_kubernetes_reads() {
    let text = "[8000, '8000', 0o10, 010, 1.5, -3, yes, n, ~, , 0.0.0.0:8000, 1e3, .inf, +1, 2024-01-01]";
    let text = text.replace(" ,", " '',");
    let want =
        json!([8000, "8000", "0o10", "010", 1.5, -3, true, "n", null, "", "0.0.0.0:8000", 1000.0, ".inf", 1, "2024-01-01"]);
    assert_eq!(Manifest::read(&text).unwrap().values().next(), Some(&want));
}
