//! What becomes of requests whose features are not there.

use std::time::Duration;

use serde_json::{Value, json};

use super::{answer, hydration, of_instances, read};
use crate::{HydrateAnswer, HydrateRefused};

const BODY: &str = r#"{"instances": [{"user": "a"}, {"user": "b"}]}"#;

#[test]
fn a_refusal_names_entities_and_features() {
    let hydration = of_instances(json!({}));
    let request = read(&hydration, BODY).unwrap();
    let refused = hydration.fill(&request, &answer(&[&["1", "2"], &["-", "x"]]), 0).unwrap_err();
    assert_eq!(
        serde_json::from_str::<Value>(&refused.body()).unwrap(),
        json!({
            "error": "lapwing: features are missing of 1 of 2 entities: age of {\"user\":\"b\"}: the store has none",
            "missing": [
                {"entity": {"user": "b"}, "feature": "age", "reason": "the store has none"},
                {"entity": {"user": "b"}, "feature": "risk", "reason": "the store's is no number of its datatype"},
            ],
        })
    );
    let late = HydrateRefused::Late(Duration::from_millis(5));
    assert_eq!(hydration.without(&request, late.clone()), Err(late.clone()));
    assert_eq!(late.body(), "{\"error\":\"lapwing: the feature store did not answer within the deadline of 5ms\"}\n");
}

#[test]
fn defaults_are_those_of_the_features_that_are_missing() {
    let hydration = of_instances(json!({"on_miss": "default"}));
    let request = read(&hydration, BODY).unwrap();
    let filled = hydration.fill(&request, &answer(&[&["1", "2"], &["-", "3"]]), 0).unwrap();
    assert_eq!(filled.body, r#"{"instances": [{"user": "a","features":[1.0,2.0]}, {"user": "b","features":[-1.0,3.0]}]}"#);
    assert_eq!((filled.entities, filled.defaulted), (2, 1));
    let without = hydration.without(&request, HydrateRefused::Failed("gone".to_owned())).unwrap();
    assert_eq!(without.body, r#"{"instances": [{"user": "a","features":[-1.0,0.5]}, {"user": "b","features":[-1.0,0.5]}]}"#);
    assert_eq!((without.entities, without.defaulted), (2, 2));
}

#[test]
fn an_answer_to_another_question_is_none() {
    let hydration = of_instances(json!({}));
    let request = read(&hydration, BODY).unwrap();
    for other in [answer(&[&["1", "2"]]), answer(&[&["1", "2"], &["1"]]), HydrateAnswer::Feast("{}".into())] {
        assert!(matches!(hydration.fill(&request, &other, 0), Err(HydrateRefused::Failed(_))), "{other:?}");
    }
    let lenient = of_instances(json!({"on_miss": "default"}));
    assert_eq!(lenient.fill(&read(&lenient, BODY).unwrap(), &answer(&[]), 0).unwrap().defaulted, 2);
}

#[test]
fn no_more_than_sixteen_are_named() {
    let hydration = hydration(json!({}));
    let (ids, nulls) = ((0..100).map(|id| id.to_string()).collect::<Vec<_>>().join(","), [["-", "-"]; 100]);
    let body = format!(r#"{{"inputs":[{{"name":"user","shape":[100],"datatype":"INT32","data":[{ids}]}}]}}"#);
    let request = read(&hydration, body).unwrap();
    let rows: Vec<&[&str]> = nulls.iter().map(|row| &row[..]).collect();
    let Err(HydrateRefused::Missing { entities, missed, features }) = hydration.fill(&request, &answer(&rows), 0) else {
        panic!()
    };
    assert_eq!((entities, missed, features.len()), (100, 100, 16));
}
