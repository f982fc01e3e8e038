//! Answers as widespread APIs give them, of outputs as models give them: embeddings, probabilities, labels, rankings.

use super::*;

/// A model of tokens with this output, or outputs.
#[cfg(feature = "tokenizers")]
fn tokens(outputs: &[(&str, &str, &[Option<usize>])]) -> ModelPorts {
    ModelPorts { inputs: encoder().inputs, outputs: ports(outputs) }
}

#[cfg(feature = "tokenizers")]
fn of_texts(more: Value) -> MappingRule {
    let mut value = serde_json::to_value(texts(8)).unwrap();
    let Value::Object(more) = more else { panic!() };
    value.as_object_mut().unwrap().extend(more);
    rule(value)
}

#[cfg(feature = "tokenizers")]
mod of_tokens {
    use super::*;

    /// A vector of each token, which an API of embeddings pools and scales.
    fn embeddings() -> RequestMapping {
        let rule = of_texts(json!({
            "route": "POST /v1/embeddings",
            "text": "$.input",
            "parameters": {"$.dimensions": "2"},
            "outputs": {"embedding": "$.data[].embedding"},
            "postprocessing": {"embedding": {"output": "last_hidden_state", "pooling": "mean", "normalize": "l2"}},
        }));
        mapping(&rule, &tokens(&[("last_hidden_state", "FP32", &[None, None, Some(2)])]))
    }

    #[test]
    fn embeddings_are_pooled_over_the_texts_tokens_and_scaled() {
        let mapping = embeddings();
        let called = call(&mapping, r#"{"input": ["the lapwing", ""], "encoding_format": "base64"}"#).unwrap();
        assert_eq!(&called.token_counts[..], [4, 2], "[CLS] and [SEP] are tokens");
        let head = parts(&called).0;
        assert_eq!(head["outputs"], json!([{"name": "last_hidden_state", "parameters": {"binary_data": true}}]));
        // the mean of the first text is [3, 4], of the second [0, 2]: what fills it up counts for nothing
        let vectors = [3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 0.0, 1.0, 0.0, 3.0, 9.0, 9.0, 9.0, 9.0];
        let model = || output("last_hidden_state", &[2, 4, 2], &vectors);
        let numbers = r#"{"data": [{"embedding": [0.6, 0.8]}, {"embedding": [0, 1]}]}"#;
        // base64.b64encode(numpy.array([0.6, 0.8], "<f4")), numpy.array([0, 1], "<f4"), which OpenAI's client asks for
        let encoded = r#"{"data": [{"embedding": "mpkZP83MTD8="}, {"embedding": "AAAAAAAAgD8="}]}"#;
        for answer in [numbers, encoded] {
            let found = compared(&mapping, answer, model(), &called.token_counts);
            assert_eq!(
                (found.result, found.fields[0].field.as_str()),
                (ComparisonResult::Same, "embedding"),
                "{:?}",
                found.fields
            );
            let numbers = found.fields[0].numbers.as_ref().unwrap();
            assert_eq!(numbers.elements, 4);
        }
        let found = compared(
            &mapping,
            r#"{"data": [{"embedding": [0.6, 0.8]}, {"embedding": [0.1, 1]}]}"#,
            model(),
            &called.token_counts,
        );
        assert_eq!(found.result, ComparisonResult::Different);
        assert!(compared(&mapping, numbers, model(), &[4, 2, 1]).kinds().contains(DifferenceKind::Undecodable));
        for (body, reason) in [
            (r#"{"input": "a", "dimensions": 1}"#, "mapping_parameter"),
            (r#"{"input": [1, 2, 3]}"#, "mapping_type"),
            (r#"{"input": [[1, 2], [3]]}"#, "mapping_type"),
        ] {
            assert_eq!(call(&mapping, body).unwrap_err().drop_reason().name(), reason, "{body}");
        }
    }

    #[test]
    fn a_query_is_paired_with_each_text_and_the_ranking_is_put_in_the_requests_order() {
        let rule = of_texts(json!({
            "route": "POST /rerank",
            "text": "$.query",
            "text_pair": "$.texts",
            "parameters": {"$.raw_scores": "false"},
            "outputs": {"score": "$[].score"},
            "postprocessing": {"score": {"output": "logits", "activation": "sigmoid", "order": "$[].index"}},
        }));
        let mapping = mapping(&rule, &tokens(&[("logits", "FP32", &[None, Some(1)])]));
        let body = r#"{"query": "the lapwing", "texts": ["calls", "calls the lapwing calls the lapwing"]}"#;
        let (head, data) = parts(&call(&mapping, body).unwrap());
        assert_eq!(head["inputs"][0]["shape"], json!([2, 8]));
        // tokenizers: encode(query, text) with truncation to 8 tokens, the longer of the two first
        assert_eq!(longs(&data[0]), [1, 4, 5, 2, 6, 2, 3, 3, 1, 4, 5, 2, 6, 4, 5, 2]);
        let segments: Vec<u8> = data[2].iter().copied().step_by(4).collect();
        assert_eq!(segments, [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
        // sigmoid(-1), sigmoid(2)
        let answer = |first: usize, second: usize| {
            json!([{"index": first, "score": 0.880_797}, {"index": second, "score": 0.268_941}]).to_string()
        };
        let found = |answer: &str| compared(&mapping, answer, output("logits", &[2, 1], &[-1.0, 2.0]), &[6, 8]);
        assert_eq!(found(&answer(1, 0)).result, ComparisonResult::Same, "{:?}", found(&answer(1, 0)).fields);
        assert_eq!(found(&answer(0, 1)).result, ComparisonResult::Different);
        for part in [answer(1, 1), answer(1, 2), json!([{"index": 1, "score": 0.880_797}]).to_string()] {
            assert!(matches!(found(&part).result, ComparisonResult::Incomparable(_)), "{part}");
        }
        let uneven = r#"{"query": ["a", "b", "c"], "texts": ["calls", "the"]}"#;
        assert_eq!(call(&mapping, uneven).unwrap_err().drop_reason().name(), "mapping_shape");
        // a query of 100 kB with 1,000 texts would be 100 MB of text
        let long = json!({"query": "the ".repeat(25_000), "texts": vec!["calls"; 1000]}).to_string();
        assert_eq!(call(&mapping, long).unwrap_err().drop_reason().name(), "mapping_too_large");
    }

    /// `tests/fixtures/tokenizers/make_golden.py` wrote what the library itself makes of them.
    #[test]
    fn texts_and_pairs_are_cut_as_the_tokenizers_library_does() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers");
        let golden: Value = serde_json::from_str(include_str!("../../../../../tests/fixtures/tokenizers/encoded.json")).unwrap();
        for one in golden.as_array().unwrap() {
            let file = folder.join(format!("{}.json", one["tokenizer"].as_str().unwrap()));
            let mut more = json!({"tokenizer": file, "max_tokens": one["max_tokens"]});
            if !one["pair"].is_null() {
                more["text_pair"] = json!("$.pair");
            }
            let called =
                call(&mapping(&of_texts(more), &encoder()), json!({"inputs": one["text"], "pair": one["pair"]}).to_string());
            let ids: Vec<i64> = serde_json::from_value(one["ids"].clone()).unwrap();
            if ids.is_empty() {
                assert_eq!(called.unwrap_err().drop_reason().name(), "mapping_tokens");
                continue;
            }
            let (_, data) = parts(&called.unwrap());
            assert_eq!(longs(&data[0]), ids, "{one}");
            let segments: Vec<u32> = data[2].as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            assert_eq!(json!(segments), one["type_ids"], "{one}");
        }
    }

    #[test]
    fn inputs_that_a_model_does_not_have_are_left_out_and_positions_are_made() {
        let only = |names: &[&str]| ModelPorts {
            inputs: names.iter().map(|name| TensorPort::new((*name).into(), "INT64", vec![None, None]).unwrap()).collect(),
            ..encoder()
        };
        let without_mask = mapping(&texts(8), &only(&["input_ids", "position_ids"]));
        let (_, data) = parts(&call(&without_mask, r#"{"inputs": ["the", "lapwing"]}"#).unwrap());
        assert_eq!(longs(&data[1]), [0, 1, 2, 0, 1, 2]);
        let fault = call(&without_mask, r#"{"inputs": ["the", "the lapwing"]}"#).unwrap_err();
        assert_eq!(fault.to_string(), "texts: they have unequal lengths, and the model has no attention_mask");
        // lists of one text, as some APIs have them for each row
        let nested = call(&mapping(&texts(8), &encoder()), r#"{"inputs": [["the"], ["lapwing"]]}"#).unwrap();
        assert_eq!(nested.token_counts.len(), 2);
    }
}

#[test]
fn probabilities_are_columns_labels_or_both() {
    let of = |more: Value| {
        let mut value = json!({"route": "POST /score", "inputs": {"x": "$.rows"}});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let outputs = ports(&[("logits", "FP32", &[None, Some(3)])]);
        mapping(&rule(value), &ModelPorts { inputs: scorer().inputs, outputs })
    };
    // softmax([1, 2, 4]) = [0.042010, 0.114195, 0.843795]
    let logits = || output("logits", &[1, 3], &[1.0, 2.0, 4.0]);
    let labels = json!(["cat", "dog", "owl"]);
    let softmax = |more: Value| {
        let mut of = json!({"output": "logits", "activation": "softmax"});
        of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of
    };
    let both = of(json!({
        "outputs": {"label": "$.label", "score": "$.score"},
        "postprocessing": {
            "label": {"output": "logits", "select": "argmax", "labels": labels},
            "score": softmax(json!({"select": "max"})),
        },
    }));
    let head = parts(&call(&both, r#"{"rows": [1, 2, 3]}"#).unwrap()).0;
    assert_eq!(head["outputs"].as_array().unwrap().len(), 1, "an output of which two values are made is asked for once");
    let column = of(json!({"outputs": {"p": "$.probability"}, "postprocessing": {"p": softmax(json!({"select": "2"}))}}));
    let index =
        of(json!({"outputs": {"class": "$.class"}, "postprocessing": {"class": {"output": "logits", "select": "argmax"}}}));
    let by_label = |path: &str| {
        let rule = json!({"outputs": {"p": path}, "postprocessing": {"p": softmax(json!({"labels": labels}))}});
        of(rule)
    };
    let cases = [
        (&both, r#"{"label": "owl", "score": 0.843795}"#, true),
        (&both, r#"{"label": "dog", "score": 0.843795}"#, false),
        (&both, r#"{"label": "owl", "score": 0.114195}"#, false),
        (&column, r#"{"probability": 0.843795}"#, true),
        (&column, r#"{"probability": [0.843795]}"#, true),
        (&column, r#"{"probability": 0.114195}"#, false),
        (&index, r#"{"class": 2}"#, true),
        (&index, r#"{"class": 2.0}"#, true),
        (&index, r#"{"class": 1}"#, false),
        (&by_label("$.p"), r#"{"p": {"owl": 0.843795, "cat": 0.042010, "dog": 0.114195}}"#, true),
        (&by_label("$.p"), r#"{"p": {"owl": 0.114195, "cat": 0.042010, "dog": 0.843795}}"#, false),
        (
            &by_label("$"),
            r#"[{"label": "owl", "score": 0.843795}, {"label": "dog", "score": 0.114195}, {"label": "cat", "score": 0.042010}]"#,
            true,
        ),
    ];
    for (mapping, answer, is_same) in cases {
        let found = compared(mapping, answer, logits(), &[]);
        let expected = if is_same { ComparisonResult::Same } else { ComparisonResult::Different };
        assert_eq!(found.result, expected, "{answer}: {:?}", found.fields);
    }
    for (mapping, answer) in
        [(&both, r#"{"label": 2, "score": 0.8}"#), (&by_label("$.p"), r#"{"p": {"cow": 1}}"#), (&index, r#"{"class": 1.5}"#)]
    {
        assert!(matches!(compared(mapping, answer, logits(), &[]).result, ComparisonResult::Incomparable(_)), "{answer}");
    }
}

#[test]
fn a_request_that_the_api_refused_says_nothing_of_the_model() {
    let mapping = mapping(&scores(), &scorer());
    let (mut refused, answer) = (TestAnswer::json(r#"{"detail": "too many rows"}"#), TestAnswer::json("{\"outputs\": []}"));
    let readings = [AnswerReading::Mapped(mapping.outputs()), AnswerReading::Model(mapping.outputs(), &[])];
    let mut of = |status: u16| {
        refused.status = status;
        let comparer = Comparer::new(&Config::default().compare);
        let scales = FieldScales::default();
        comparer.compare_as("POST /score", readings, &scales, &refused.as_finished(), &answer.as_finished()).result
    };
    assert!(matches!(of(422), ComparisonResult::Incomparable(reason) if reason.name() == "primary_refused"));
    assert!(matches!(of(429), ComparisonResult::Incomparable(_)));
    assert_eq!(of(500), ComparisonResult::Different);
}
