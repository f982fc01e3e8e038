//! Which entities a request names, and what is asked of the store.

use bytes::Bytes;
use http::Request;
use serde_json::json;

use super::{answer, asked, hydration, of_instances, read, rule};
use crate::{HydrateAnswer, HydratePassed, HydrateQuestion, Hydration, Hydrator};
use lapwing_protocol::request_match::KnownRequest;

#[test]
fn a_tensor_names_one_entity_for_each_row_and_each_is_asked_for_once() {
    let hydration = hydration(json!({}));
    for (shape, data) in [("[3]", "[7, 8,7]"), ("[3,1]", "[[7],[8],[7]]"), ("[3, 1, 1]", "[7,[8],[[7]]]")] {
        let body = format!(
            r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"FP32","data":[1]}},{{"name":"user","shape":{shape},"datatype":"INT64","data":{data}}}]}}"#
        );
        let request = read(&hydration, &body).unwrap();
        assert_eq!(asked(&hydration, &request), [["HMGET", "user:7", "age", "risk"], ["HMGET", "user:8", "age", "risk"]]);
        let filled = hydration.fill(&request, &answer(&[&["1", "0.25"], &["2", "1e-3"]]), 0).unwrap();
        let features = r#",{"name":"features","shape":[3,2],"datatype":"FP32","data":[1.0,0.25,2.0,0.001,1.0,0.25]}]}"#;
        assert_eq!(filled.body, format!("{}{features}", body.strip_suffix("]}").unwrap()));
        assert_eq!((filled.entities, filled.defaulted), (2, 0));
    }
}

#[test]
fn a_key_has_several_parts_and_strings_have_keys_of_their_own() {
    let entity = json!([{"name": "user", "pointer": "/instances/*/user"}, {"name": "zone", "pointer": "/zone"}]);
    let store = json!({"key": "{zone}/{user}/{feature}"});
    let hydration = of_instances(json!({"entity": entity, "store": store}));
    let request = read(&hydration, r#"{"zone": "n", "instances": [{"user": "a"}, {"user": "b"}]}"#).unwrap();
    assert_eq!(asked(&hydration, &request), [["MGET", "n/a/age", "n/a/risk"], ["MGET", "n/b/age", "n/b/risk"]]);
}

#[test]
fn feasts_redis_is_asked_by_its_fields_and_for_the_age() {
    let store = json!({"kind": "feast", "url": "redis://r", "project": "p", "max_age": "1h"});
    let features = json!([{"name": "stats:trips"}, {"name": "stats:rate"}, {"name": "other:x"}]);
    let hydration =
        of_instances(json!({"store": store, "features": features, "into": {"pointer": "/instances/*/f", "datatype": "INT64"}}));
    let request = read(&hydration, r#"{"instances": [{"user": 5}]}"#).unwrap();
    let HydrateQuestion::Redis(commands) = hydration.question(&request) else { panic!() };
    let [command] = commands.as_slice() else { panic!() };
    assert_eq!((command.len(), &command[5..]), (7, &[b"_ts:stats".to_vec(), b"_ts:other".to_vec()][..]));
    // an int64 of 5, made at 1,000 s
    let (five, made) = (Some(Bytes::from_static(b"\x20\x05")), Some(Bytes::from_static(b"\x08\xe8\x07")));
    let reply = |other| HydrateAnswer::Redis(vec![vec![five.clone(), five.clone(), five.clone(), made.clone(), other]]);
    let filled = |reply, now_s| hydration.fill(&request, &reply, now_s).map(|filled| filled.body);
    assert_eq!(filled(reply(made.clone()), 4_600).unwrap(), r#"{"instances": [{"user": 5,"f":[5,5,5]}]}"#);
    let refused = filled(reply(made.clone()), 4_601).unwrap_err().to_string();
    assert_eq!(
        refused,
        r#"features are missing of 1 of 1 entities: stats:trips of {"user":5}: the store's is older than max_age"#
    );
    assert!(filled(reply(None), 0).unwrap_err().to_string().contains("other:x of"));
}

#[test]
fn feasts_server_is_asked_once() {
    let store = json!({"kind": "feast", "url": "http://f"});
    let hydration = of_instances(json!({"store": store, "features": [{"name": "stats:trips"}]}));
    let request = read(&hydration, r#"{"instances": [{"user": 5},{"user": "x"},{"user": 5}]}"#).unwrap();
    let HydrateQuestion::Feast(body) = hydration.question(&request) else { panic!() };
    assert!(String::from_utf8(body).unwrap().contains(r#""entities":{"user":[5,"x"]}"#));
    let answer = r#"{"metadata":{"feature_names":["user","stats__trips"]},
        "results":[{"values":[5,"x"],"statuses":["PRESENT","PRESENT"]},{"values":[1,2],"statuses":["PRESENT","PRESENT"]}]}"#;
    let filled = hydration.fill(&request, &HydrateAnswer::Feast(answer.into()), 0).unwrap();
    let expected = r#"{"instances": [{"user": 5,"features":[1.0]},{"user": "x","features":[2.0]},{"user": 5,"features":[1.0]}]}"#;
    assert_eq!(filled.body, expected);
}

#[test]
fn values_are_numbers_in_text_or_in_bytes() {
    let features = json!([{"name": "a", "width": 2}]);
    let text = of_instances(json!({ "features": features }));
    let bytes = of_instances(json!({"features": features, "store": {"key": "{user}", "encoding": "float32"}}));
    let filled = |hydration: &Hydration, value: Vec<u8>| {
        let request = read(hydration, r#"{"instances":[{"user":1}]}"#).unwrap();
        let filled = hydration.fill(&request, &HydrateAnswer::Redis(vec![vec![Some(value.into())]]), 0);
        filled.map(|filled| String::from_utf8(filled.body.to_vec()).unwrap()).map_err(|refused| refused.to_string())
    };
    let row = r#"{"instances":[{"user":1,"features":[0.1,-2.0]}]}"#;
    assert_eq!(filled(&text, b"0.1, -2".to_vec()).unwrap(), row);
    assert_eq!(filled(&bytes, [0.1_f32, -2.0].map(f32::to_le_bytes).concat()).unwrap(), row);
    for (hydration, value, why) in [
        (&text, &b"0.1"[..], "another width"),
        (&text, b"1 x", "no number"),
        (&text, b"", "no number"),
        (&text, b"\xff", "no number"),
        (&bytes, b"\0\0\0", "another width"),
        (&bytes, b"\0\0\xc0\x7f\0\0\0\0", "no number"),
    ] {
        assert!(filled(hydration, value.to_vec()).unwrap_err().contains(why), "{value:?}");
    }
}

#[test]
fn what_a_rule_does_not_understand_passes() {
    let hydration = hydration(json!({}));
    let instances = of_instances(json!({}));
    let tensor = |more: &str| format!(r#"{{"inputs":[{{"name":"user","datatype":"INT64"{more}}}]}}"#);
    let users = |n: usize| format!(r#"{{"instances":[{}]}}"#, vec![r#"{"user":1}"#; n].join(","));
    for (of, body, why) in [
        (&hydration, tensor(r#","shape":[2],"data":[1]"#), HydratePassed::Entity),
        (&hydration, tensor(r#","shape":[1,2],"data":[1,2]"#), HydratePassed::Entity),
        (&hydration, tensor(r#","shape":[1],"data":[1.5]"#), HydratePassed::Entity),
        (&hydration, tensor(r#","shape":[0],"data":[]"#), HydratePassed::Entity),
        (&hydration, tensor(r#","shape":[1],"parameters":{"shared_memory_region":"r"}"#), HydratePassed::Entity),
        (&hydration, tensor("").replace("user", "other"), HydratePassed::Entity),
        (&hydration, tensor(r#","shape":[1],"data":[1]},{"name":"features","datatype":"FP32""#), HydratePassed::Present),
        (&hydration, tensor(r#","shape":[1],"data":[1]},{"name":"user","datatype":"FP32""#), HydratePassed::Format),
        (&hydration, r#"{"inputs":{"user":[1]}}"#.to_owned(), HydratePassed::Format),
        (&hydration, r#"{"inputs":"user"}"#.to_owned(), HydratePassed::Format),
        (&hydration, r#"{"instances":[],"inputs":[]}"#.to_owned(), HydratePassed::Format),
        (&hydration, users(1), HydratePassed::Format),
        (&instances, r#"{"messages":[]}"#.to_owned(), HydratePassed::Format),
        (&instances, r#"{"instances":[{"user":1},{}]}"#.to_owned(), HydratePassed::Entity),
        (&instances, r#"{"instances":[{"user":1},5]}"#.to_owned(), HydratePassed::Format),
        (&instances, r#"{"instances":[{"user":1,"features":0}]}"#.to_owned(), HydratePassed::Present),
        (&instances, r#"{"instances":[]}"#.to_owned(), HydratePassed::Entity),
        (&instances, r#"{"instances":[{"user":1,"user":2}]}"#.to_owned(), HydratePassed::Format),
        (&instances, r#"{"instances":[{"user":1}]} {}"#.to_owned(), HydratePassed::Format),
        (&instances, users(1_025), HydratePassed::TooMany),
        (&instances, "\u{0}".to_owned(), HydratePassed::Format),
    ] {
        assert_eq!(read(of, &body).map(|_| ()), Err(why), "{body}");
    }
    assert!(read(&instances, users(1_024)).is_ok());
    let wide = of_instances(json!({"features": [{"name": "a", "width": 1_024}]}));
    assert_eq!(read(&wide, users(257)).map(|_| ()), Err(HydratePassed::TooMany));
}

#[test]
fn heads_say_what_is_not_read_and_which_rule_takes_a_request() {
    let head = |name: &str, value: &str| Request::post("/v2/models/m/infer").header(name, value).body(()).unwrap();
    for (name, value, why) in [
        ("content-type", "application/json; charset=utf-8", None),
        ("content-encoding", "identity", None),
        ("content-type", "application/x-protobuf", Some(HydratePassed::Format)),
        ("content-encoding", "gzip", Some(HydratePassed::Coded)),
        ("content-digest", "sha-256=:x:", Some(HydratePassed::Coded)),
        ("inference-header-content-length", "12", Some(HydratePassed::Binary)),
    ] {
        assert_eq!(Hydration::passes(&head(name, value)), why, "{name}: {value}");
    }
    let (rules, _keepers) = Hydrator::new(&[rule(json!({"match": {"header": "x-a"}})), rule(json!({}))]);
    let rules = rules.unwrap();
    let find =
        |request: &Request<()>, model| rules.find(request, KnownRequest { model, ..KnownRequest::default() }).map(|(at, _)| at);
    assert_eq!((find(&head("x-a", "1"), Some("m")), find(&head("x-b", "1"), Some("m"))), (Some(0), Some(1)));
    assert_eq!(find(&head("x-b", "1"), Some("other")), None);
    let takes = |path: &str| rules.may_take(&Request::post(path).body(()).unwrap());
    assert!(takes("/v2/models/m/infer") && takes("/invocations") && !takes("/v2/models/other/infer"));
}
