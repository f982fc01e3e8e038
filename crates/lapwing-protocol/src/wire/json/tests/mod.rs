//! JSON documents and the expected values, written by hand.

mod properties;

use std::sync::Arc;

use super::*;

/// Everything that comes out of a document, in one piece and byte by byte.
fn read(patterns: &[&'static str], document: &str) -> Vec<String> {
    read_by(JsonPaths::new(patterns.iter().map(|p| (*p, *p))), document)
}

fn read_by(paths: JsonPaths<&'static str>, document: &str) -> Vec<String> {
    let paths = Arc::new(paths);
    let run = |length: usize| {
        let (mut seen, mut reader) = (Vec::new(), JsonReader::new(paths.clone()));
        let mut on = |tag: &str, value: JsonValue<'_>| {
            seen.push(match value {
                JsonValue::Null => format!("{tag}=null"),
                JsonValue::Bool(b) => format!("{tag}={b}"),
                JsonValue::Number(n) => format!("{tag}={n}"),
                JsonValue::Numbers { len } => format!("{tag}=#{len}"),
                JsonValue::Text { head, bytes } => format!("{tag}={:?}/{bytes}", String::from_utf8_lossy(head)),
                JsonValue::Array { len } => format!("{tag}=[{len}]"),
                JsonValue::Object { len } => format!("{tag}={{{len}}}"),
            });
        };
        document.as_bytes().chunks(length).for_each(|piece| reader.feed(piece, &mut on));
        let is_done = reader.end(&mut on);
        assert_eq!(is_done, !reader.is_broken(), "{document}: whole documents are done");
        if !is_done {
            seen.push("broken".to_owned());
        }
        seen
    };
    let whole = run(document.len());
    for length in 1..document.len().min(70) {
        assert_eq!(run(length), whole, "{document} in pieces of {length}");
    }
    whole
}

#[test]
fn an_oip_request() {
    let document = r#"{"id": "42", "inputs": [
        {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [[1.5, 2, 3], [4e0, 5, -6]]},
        {"name": "y", "datatype": "BYTES", "shape": [1], "data": ["a]\",b"]}], "parameters": {"a": {"b": [1]}, "c": 1}}"#;
    let patterns = ["id", "inputs", "inputs[].shape[]", "inputs[].datatype", "inputs[].data", "parameters", "outputs"];
    let expected = [
        "id=\"42\"/2",
        "inputs[].shape[]=2",
        "inputs[].shape[]=3",
        "inputs[].datatype=\"FP32\"/4",
        "inputs[].data=[2]",
        "inputs[].datatype=\"BYTES\"/5",
        "inputs[].shape[]=1",
        "inputs[].data=[1]",
        "inputs=[2]",
        "parameters={2}",
    ];
    assert_eq!(read(&patterns, document), expected);
}

#[test]
fn a_chunk_of_a_chat() {
    let document = r#"{"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a\u00e9\n\ud83d\ude00"}},{"delta":{
        "content":null}}],"usage":{"prompt_tokens":12,"completion_tokens":1e2},"x":true}"#;
    let patterns = ["mod\u{65}l", "choices[].delta.content", "usage.*", "usage.prompt_tokens", "x"];
    let expected = [
        "model=\"m\"/1",
        "choices[].delta.content=\"aé\\n😀\"/21",
        "choices[].delta.content=null",
        "usage.prompt_tokens=12",
        "usage.*=100",
        "x=true",
    ];
    assert_eq!(read(&patterns, document), expected);
}

#[test]
fn keys_match_unescaped_and_twice_but_not_if_long() {
    let long = "k".repeat(KEY_BYTES);
    let document = format!(r#"{{"mod\u0065l":1,"model":2,"a\/b":3,"{long}":4,"{long}k":5}}"#);
    let leaked: &'static str = long.leak();
    let too_long: &'static str = format!("{leaked}k").leak();
    let expected = ["model=1".to_owned(), "model=2".to_owned(), "a/b=3".to_owned(), format!("{leaked}=4")];
    assert_eq!(read(&["model", "a/b", leaked, too_long], &document), expected);
}

#[test]
fn elements_are_counted_whatever_they_are() {
    for (array, len) in [
        ("[]", 0),
        (" [ ] ", 0),
        ("[1]", 1),
        ("[1, 2,\n3]", 3),
        (r#"["a,b", "", "\",", "\\"]"#, 4),
        ("[[1,2],[],[[3,4],5]]", 3),
        (r#"[{"a":1,"b":[1,2]},{},null,true]"#, 4),
        (r#"[{"a":"},{","b":"\\\"]"},[",,"]]"#, 2),
    ] {
        assert_eq!(read(&[""], array), [format!("=[{len}]")], "{array}");
        assert_eq!(read(&["a"], &format!(r#"{{"b":{array},"a":{array}}}"#)), [format!("a=[{len}]")], "{array}");
        let mixed = read(&["", "[].zzz"], array);
        assert_eq!(mixed, [format!("=[{len}]")], "{array}");
    }
    let many = format!("[{}]", vec!["-0.12345678"; 1000].join(", "));
    assert_eq!(read(&[""], &many), ["=[1000]"]);
    assert_eq!(read(&["", "[0]", "[2]"], &many), ["[0]=-0.12345678", "[2]=-0.12345678", "=[1000]"]);
}

#[test]
fn numbers_are_counted_in_runs_and_dimensions_only_so_far() {
    let how = |tag: &str| match tag {
        "shape[]" => ElementMode::First(3),
        "each[]" => ElementMode::Each,
        _ => ElementMode::Counted,
    };
    for (document, expected) in [
        (r#"{"ids":[]}"#, &["ids=[0]"][..]),
        (r#"{"ids":[ 7 ]}"#, &["ids[]=#1", "ids=[1]"]),
        (r#"{"ids":[1, -2.5e3 ,3]}"#, &["ids[]=#3", "ids=[3]"]),
        (
            r#"{"ids":[12,34,"x",56,null,[1,2]]}"#,
            &["ids[]=#2", "ids[]=\"x\"/1", "ids[]=#1", "ids[]=null", "ids[]=[2]", "ids=[6]"],
        ),
        (r#"{"ids":[1,-Infinity,NaN,2]}"#, &["ids[]=#1", "ids[]=#1", "ids=[4]"]),
        (r#"{"ids":[-Infinity]}"#, &["ids=[1]"]),
        (r#"{"each":[1,2]}"#, &["each[]=1", "each[]=2"]),
        (r#"{"shape":[1,2]}"#, &["shape[]=1", "shape[]=2", "shape=[2]"]),
        (r#"{"shape":[1,2,3,4,[5,6],7]}"#, &["shape[]=1", "shape[]=2", "shape[]=3", "shape=[6]"]),
        // these are not watched
        (r#"{"deep":[1,2,{"a":3}]}"#, &["deep[].a=3", "deep=[3]"]),
        (r#"{"ids":[1,]}"#, &["broken"]),
        (r#"{"ids":[1 "a"]}"#, &["broken"]),
        (r#"{"ids":[1}"#, &["broken"]),
    ] {
        let places = ["ids", "ids[]", "each[]", "shape", "shape[]", "deep", "deep[].a"].map(|p| (p, p));
        assert_eq!(read_by(JsonPaths::new(places).with_elements(how), document), expected, "{document}");
    }
    // two paths in one array are distinguished
    let some = JsonPaths::new(["[]", "[1]"].map(|p| (p, p))).with_elements(how);
    assert_eq!(read_by(some, "[1,2,3]"), ["[]=1", "[1]=2", "[]=3"]);
    let many = format!("{{\"ids\":[{}]}}", vec!["128000"; 1000].join(", "));
    let ids = JsonPaths::new(["ids", "ids[]"].map(|p| (p, p))).with_elements(how);
    assert_eq!(read_by(ids, &many), ["ids[]=#1000", "ids=[1000]"]);
}

#[test]
fn keys_are_counted() {
    for (object, len) in [("{}", 0), ("{ }", 0), (r#"{"a":{"b":1,"c":2},"d,":"e,"}"#, 2)] {
        assert_eq!(read(&[""], object), [format!("={{{len}}}")]);
        assert_eq!(read(&["", "zzz"], object), [format!("={{{len}}}")]);
    }
}

#[test]
fn bare_values() {
    for (document, expected) in [
        ("42", "=42"),
        (" -1.5e3 ", "=-1500"),
        ("null", "=null"),
        ("false\n", "=false"),
        ("\"x\"", "=\"x\"/1"),
        ("9007199254740993", "=9007199254740992"),
    ] {
        assert_eq!(read(&[""], document), [expected]);
    }
}

#[test]
fn numbers_that_are_none_or_too_long_are_not_handed_over() {
    let document = format!("[NaN, -Infinity, 1e999, 1{}, {}, 2]", "0".repeat(NUMBER_BYTES), "1".repeat(200));
    assert_eq!(read(&["[]"], &document), ["[]=2"]);
}

#[test]
fn texts_keep_their_first_bytes() {
    let text = "0123456789".repeat(30);
    assert_eq!(read(&["a"], &format!(r#"{{"a":"{text}"}}"#)), [format!("a={:?}/300", &text[..TEXT_BYTES])]);
    assert_eq!(read(&["a"], r#"{"a":"\ud83d\u0041\ude00\q\u12"}"#), ["a=\"\u{fffd}A\u{fffd}q\"/24"]);
}

#[test]
fn what_servers_write_and_the_standard_does_not_is_read() {
    for (document, expected) in [
        ("\u{feff}{\"a\":1}", &["a=1"][..]),
        ("{\"a\":1}\n\0", &["a=1"]),
        ("{\"b\":nan,\"a\":1}", &["a=1"]),
        ("{\"a\":Infinity,\"c\":2}", &["c=2"]),
        ("{\"a\":-1.#IND,\"c\":2}", &["c=2"]),
        ("{\"a\":None,\"c\":True}", &["a=null", "c=true"]),
        ("{\"a\":1e400,\"c\":2}", &["c=2"]),
        ("{\"a\":1,\"a\":2}", &["a=1", "a=2"]),
        ("{\"b\":\"\u{1}\\ud800\",\"a\":1}", &["a=1"]),
    ] {
        assert_eq!(read(&["a", "c"], document), expected, "{document:?}");
    }
    assert_eq!(
        read_by(JsonPaths::new([("ids[]", "ids[]")]), "{\"ids\":[1.#INF,NaN,2]}").last().map(String::as_str),
        Some("ids[]=2")
    );
}

#[test]
fn what_is_broken_goes_quiet() {
    for document in
        ["{a:1}", "{\"a\" 1}", "{\"a\":1]", "[1}", "{\"a\":1}x", "]", "{\"a\":1,}", "[1 2]", "{\"a\":x1}", "{\"b\":[1}}"]
    {
        let seen = read(&["a", "[]"], document);
        assert_eq!(seen.last().map(String::as_str), Some("broken"), "{document}: {seen:?}");
    }
    assert_eq!(read(&["a", "c"], "{\"a\":1,\"b\" 2,\"c\":3}"), ["a=1", "broken"]);
}

#[test]
fn nesting_is_bounded() {
    for (depth, is_broken) in [(DEPTH, false), (DEPTH + 1, true)] {
        let document = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let mut expected = vec!["=[1]"];
        if is_broken {
            expected = vec!["broken"];
        }
        assert_eq!(read(&["", "[][][].a"], &document), expected, "{depth}");
        let way: &'static str = "[]".repeat(DEPTH).leak();
        let (seen, end) = (read(&[way], &document), if is_broken { vec!["broken"] } else { vec![] });
        assert_eq!(seen, end, "{depth}");
    }
}

#[test]
fn documents_one_behind_another() {
    let mut reader = JsonReader::new(Arc::new(JsonPaths::new([("a", ())])));
    let (mut seen, mut ends) = (Vec::new(), 0);
    for piece in [&b"{\"a\":1}\n{\"a\":"[..], b"2,\"done\":false}\r\n\n", b"{}{\"a\":3", b"}"] {
        reader.feed_many(piece, &mut |item| match item {
            JsonItem::Value((), JsonValue::Number(n)) => seen.push(n),
            JsonItem::Value((), other) => panic!("{other:?}"),
            JsonItem::End => ends += 1,
        });
    }
    assert_eq!((seen, ends), (vec![1.0, 2.0, 3.0], 4));
    assert!(!reader.is_broken());
}

#[test]
fn a_reader_starts_anew_after_anything() {
    let mut reader = JsonReader::new(Arc::new(JsonPaths::new([("a.b", ())])));
    for before in ["{\"a\":{\"b\":", "{\"x\":[[\"", "{\"a\\", "}", "{}", "{\"a\":{\"b\":\"\\ud83d"] {
        reader.feed(before.as_bytes(), &mut |(), value| panic!("{value:?}"));
        reader.restart();
        let mut seen = Vec::new();
        reader.feed(b"{\"a\":{\"b\":7}}", &mut |(), value| seen.push(format!("{value:?}")));
        assert_eq!(seen, ["Number(7.0)"], "{before}");
        assert!(reader.is_done());
        reader.restart();
    }
}
