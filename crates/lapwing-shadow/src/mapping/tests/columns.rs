//! Named values of a request as columns and as texts, and requests that ask for something else.

use super::*;

/// Three numbers of named values, of which one is a category.
fn named() -> MappingRule {
    rule(json!({
        "route": "POST /score",
        "columns": {"x": ["$.amount", "$.customer.age", "$.country"]},
        "categories": {"$.country": ["AT", "DE"]},
        "parameters": {"$.version": "2", "$.explain": "false"},
        "outputs": {"y": "$.score"},
    }))
}

#[test]
fn named_values_become_a_row() {
    let mapping = mapping(&named(), &scorer());
    let of = |body: &str| {
        let (head, data) = parts(&call(&mapping, body.to_owned())?);
        Ok::<_, MappingFault>((head["inputs"][0]["shape"].clone(), floats(&data[0])))
    };
    let expected = (json!([1, 3]), vec![12.5, 31.0, 1.0]);
    assert_eq!(of(r#"{"amount": 12.5, "customer": {"age": 31}, "country": "DE"}"#), Ok(expected.clone()));
    // other members, and parameters that are as configured
    let more = r#"{"id": "secret", "amount": 12.5, "customer": {"age": 31.0}, "country": "DE", "version": 2.0, "explain": null}"#;
    assert_eq!(of(more), Ok(expected));
    for (body, reason, text) in [
        (r#"{"amount": 1, "country": "DE"}"#, "mapping_missing", "columns.x: $.customer.age leads to nothing"),
        (
            r#"{"amount": "1", "customer": {"age": 3}, "country": "AT"}"#,
            "mapping_type",
            "columns.x: $.amount has a text, which is no FP32",
        ),
        (
            r#"{"amount": 1, "customer": {"age": 3}, "country": "secret"}"#,
            "mapping_type",
            "$.country has a text, which is no known category",
        ),
        (
            r#"{"amount": [[1]], "customer": {"age": 3}, "country": "AT"}"#,
            "mapping_shape",
            "where the model takes a value, or a list of values",
        ),
        (r#"{"version": 3}"#, "mapping_parameter", "$.version is not 2, for which alone the mapping holds"),
        (r#"{"explain": true}"#, "mapping_parameter", "$.explain is not false"),
    ] {
        let fault = of(body).unwrap_err();
        assert_eq!(fault.drop_reason().name(), reason, "{body}");
        assert!(fault.to_string().contains(text) && !fault.to_string().contains("secret"), "{fault}");
    }
}

#[test]
fn lists_become_rows_beside_a_value_of_all() {
    let ranking = rule(json!({
        "route": "POST /rank",
        "columns": {"x": ["$.user.age", "$.items[].price", "$.items[].rank"]},
        "outputs": {"y": "$.scores"},
    }));
    let mapping = mapping(&ranking, &scorer());
    let body = r#"{"user": {"age": 40}, "items": [{"price": 1, "rank": 7}, {"price": null, "rank": 8}]}"#;
    let (head, data) = parts(&call(&mapping, body).unwrap());
    assert_eq!(head["inputs"][0]["shape"], json!([2, 3]));
    let found = floats(&data[0]);
    assert!(found[4].is_nan() && found[..4] == [40.0, 1.0, 7.0, 40.0] && found[5] == 8.0, "{found:?}");
    for (body, reason) in [
        (r#"{"user": {"age": 40}, "items": []}"#, "mapping_shape"),
        (r#"{"user": {"age": [40, 41, 42]}, "items": [{"price": 1, "rank": 7}, {"price": 2, "rank": 8}]}"#, "mapping_shape"),
        (r#"{"user": {"age": 40}, "items": [{"price": 1, "rank": 7}, {"price": 2}]}"#, "mapping_missing"),
    ] {
        assert_eq!(call(&mapping, body).unwrap_err().drop_reason().name(), reason, "{body}");
    }
    // a megabyte of one column becomes as many rows of three
    let many =
        format!(r#"{{"user": {{"age": 1}}, "items": [{}{{"price": 1, "rank": 2}}]}}"#, r#"{"price":1,"rank":2},"#.repeat(45_000));
    assert!(many.len() < LIMIT);
    assert_eq!(parts(&call(&mapping, many).unwrap()).0["inputs"][0]["shape"], json!([45_001, 3]));
    let wide: Vec<&str> = std::iter::once("$.items").chain(std::iter::repeat_n("$.one", 999)).collect();
    let wide = rule(json!({"route": "POST /rank", "columns": {"x": wide}, "outputs": {"y": "$"}}));
    let ports = ModelPorts { inputs: ports(&[("x", "FP32", &[None, Some(1000)])]), ..scorer() };
    let items = format!(r#"{{"one": 1, "items": [{}1]}}"#, "1,".repeat(10_000));
    let fault = RequestMapping::new(&wide, &ports, Path::new("m.onnx"), LIMIT).unwrap().call(&HeaderMap::new(), &[items.into()]);
    assert_eq!(fault.unwrap_err().drop_reason().name(), "mapping_too_large", "20 kB must not become 40 MB");
}

#[test]
fn texts_are_tensors_of_texts_and_columns_of_them() {
    let texts = ModelPorts {
        inputs: ports(&[("country", "BYTES", &[None, Some(1)]), ("pair", "BYTES", &[None, Some(2)])]),
        outputs: ports(&[("label", "BYTES", &[None])]),
    };
    let of = rule(json!({
        "route": "POST /score",
        "inputs": {"country": "$.country"},
        "columns": {"pair": ["$.a", "$.b"]},
        "outputs": {"label": "$.label"},
    }));
    let mapping = mapping(&of, &texts);
    let (head, data) = parts(&call(&mapping, r#"{"country": ["AT", ""], "a": ["x", "yy"], "b": "same"}"#).unwrap());
    assert_eq!((&head["inputs"][0]["shape"], &head["inputs"][1]["shape"]), (&json!([2, 1]), &json!([2, 2])));
    assert_eq!(&data[0][..], b"\x02\0\0\0AT\0\0\0\0");
    assert_eq!(&data[1][..], b"\x01\0\0\0x\x04\0\0\0same\x02\0\0\0yy\x04\0\0\0same");
    assert_eq!(call(&mapping, r#"{"country": [1, 2], "a": "x", "b": "y"}"#).unwrap_err().drop_reason().name(), "mapping_type");
    let label = |text: &str| json!([{"name": "label", "datatype": "BYTES", "shape": [1], "data": [text]}]);
    let found = |model: &str| compared(&mapping, r#"{"label": "fraud"}"#, label(model), &[]);
    assert_eq!(found("fraud").result, ComparisonResult::Same);
    assert!(found("fine").kinds().contains(DifferenceKind::Text));
}

#[test]
fn a_rule_of_columns_that_does_not_fit_is_refused() {
    let refused =
        |value: Value, ports: &ModelPorts| RequestMapping::new(&rule(value), ports, Path::new("m.onnx"), LIMIT).unwrap_err();
    let y = || json!({"y": "$"});
    let columns = |name: &str| json!({"route": "POST /a", "columns": {name: ["$.a"]}, "outputs": y()});
    assert_eq!(refused(columns("z"), &scorer()), "columns.z: is no input of the model; its inputs are x");
    let twice = json!({"route": "POST /a", "inputs": {"x": "$.a"}, "columns": {"x": ["$.a"]}, "outputs": y()});
    assert_eq!(refused(twice, &scorer()), "columns.x: is mapped by inputs too");
    let half = ModelPorts { inputs: ports(&[("x", "FP16", &[None])]), ..scorer() };
    assert!(refused(columns("x"), &half).starts_with("columns.x: the model takes FP16"));
    let texts = ModelPorts { inputs: ports(&[("x", "BYTES", &[None])]), ..scorer() };
    let coded = json!({"route": "POST /a", "inputs": {"x": "$.a"}, "categories": {"$.a": ["b"]}, "outputs": y()});
    assert_eq!(refused(coded, &texts), "categories.$.a: the model's input x takes texts as they are");
    let begins = |value: Value, expected: &[&str]| {
        let config = Config { mappings: vec![rule(value)], routes: vec!["POST /a".into()], ..Config::default() };
        let mut checks = Checks::new(BTreeSet::new());
        lapwing_settings::Section::check(&config, &mut checks);
        let found: Vec<String> = checks.into_faults().iter().map(|fault| format!("{}: {}", fault.path, fault.reason)).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        found.iter().zip(expected).for_each(|(found, expected)| assert!(found.starts_with(expected), "{found}"));
    };
    begins(
        json!({
            "route": "POST /a", "columns": {"x": [], "z": ["$.a", "b"]}, "categories": {"$.c": ["d", "d"], "$.a": []},
            "parameters": {"normalize": "true"}, "text_pair": "$..b", "outputs": y(),
            "postprocessing": {
                "z": {"pooling": "mean"},
                "y": {"select": "first", "order": "index", "labels": ["a", "a"]},
            },
        }),
        &[
            "mappings[0].columns.x: must be 1 to 4096 paths",
            "mappings[0].columns.z[1]: must be a path that begins with $",
            "mappings[0].categories.$.a: must be 1 to 4096 texts",
            "mappings[0].categories.$.c: is no path of inputs or columns",
            "mappings[0].parameters.normalize: must be a path that begins with $",
            "mappings[0].postprocessing.y.select: must be argmax, max, or the index of an element",
            "mappings[0].postprocessing.y.labels: is there twice",
            "mappings[0].postprocessing.y.order: must be a path that begins with $",
            "mappings[0].postprocessing.z: is none of outputs",
            "mappings[0].text_pair: must lead to one value",
        ],
    );
    for (value, expected) in [
        (json!({"select": "1", "labels": ["a", "b"]}), "labels: have no effect with select"),
        (json!({"pooling": "mean"}), "pooling: has no effect without text"),
        (json!({"id2label": "gone.json"}), "id2label: cannot be read"),
        (json!({"id2label": "gone.json", "labels": ["a"]}), "id2label: has no effect where there are labels"),
    ] {
        let path = format!("mappings[0].postprocessing.y.{expected}");
        begins(json!({"route": "POST /a", "inputs": {"x": "$"}, "outputs": y(), "postprocessing": {"y": value}}), &[&path]);
    }
}
