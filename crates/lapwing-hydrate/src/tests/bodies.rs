//! Bodies keep every byte that they had, and what they become is what a JSON library would have made of them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{answer, hydration, of_instances, read};

#[test]
fn one_member_is_a_row_or_a_list_of_rows() {
    let of = |from: &str, into: &str, body: &str, rows: &[&[&str]]| {
        let entity = json!([{"name": "user", "pointer": from}]);
        let hydration = of_instances(json!({"entity": entity, "into": {"pointer": into}, "features": [{"name": "a"}]}));
        let request = read(&hydration, body).unwrap();
        String::from_utf8(hydration.fill(&request, &answer(rows), 0).unwrap().body.to_vec()).unwrap()
    };
    let body = r#"{"instances": [{"x": 1E5}, {}], "user": 7, "users": [7, 8], "p": { }}"#;
    let replaced = |what: &str, by: &str| body.replace(what, by);
    assert_eq!(of("/user", "/p/f", body, &[&["1"]]), replaced("{ }}", r#"{"f":[1.0] }}"#));
    assert_eq!(of("/users", "/p/f", body, &[&["1"], &["2"]]), replaced("{ }}", r#"{"f":[[1.0],[2.0]] }}"#));
    assert_eq!(of("/users", "/f\"g", body, &[&["1"], &["2"]]), replaced("{ }}", r#"{ },"f\"g":[[1.0],[2.0]]}"#));
    let in_each = replaced("1E5}, {}", r#"1E5,"f":[1.0]}, {"f":[1.0]}"#);
    assert_eq!(of("/user", "/instances/*/f", body, &[&["1"]]), in_each, "one entity of all");
}

/// A JSON value as text, with numbers, white space and escapes as people write them, and the value.
fn json_text(depth: u32) -> BoxedStrategy<String> {
    let space = prop_oneof![Just(""), Just(" "), Just("\n\t"), Just("  ")];
    let number =
        prop_oneof![Just("0"), Just("-0.0"), Just("1E5"), Just("1.50"), Just("123456789012345678901234567890"), Just("0.1e-7")];
    let text = prop_oneof![Just(r#""""#), Just(r#""a\"]}""#), Just(r#""\u00eb\\""#), Just(r#""{[,:""#), Just("\"Zoë\"")];
    let leaf = prop_oneof![
        number.prop_map(str::to_owned),
        text.prop_map(str::to_owned),
        Just("null".to_owned()),
        Just("true".to_owned())
    ];
    let around = move |inner: BoxedStrategy<String>| {
        let one = (space.clone(), inner, space.clone()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let list = prop::collection::vec(one.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(",")));
        let object = prop::collection::vec(one, 0..4).prop_map(|all| {
            let members: Vec<_> = all.iter().enumerate().map(|(at, value)| format!("\"k{at}\" :{value}")).collect();
            format!("{{ {}}}", members.join(" ,"))
        });
        prop_oneof![list, object].boxed()
    };
    (0..depth).fold(leaf.boxed(), |inner, _| prop_oneof![inner.clone(), around(inner)].boxed())
}

/// Takes what was put in out of `edited`: what is left must be `body`.
fn is_only_added(body: &str, edited: &str) -> bool {
    let mut rest = edited.bytes();
    body.bytes().all(|byte| rest.any(|other| other == byte))
}

/// `body` read and written by a library that keeps numbers and order.
fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

proptest! {
    #[test]
    fn instances_get_their_features_and_nothing_else_changes(
        others in prop::collection::vec(json_text(3), 1..6),
        more in json_text(3),
        ids in prop::collection::vec(0_u8..4, 6),
        at_end in any::<bool>(),
    ) {
        let hydration = of_instances(json!({}));
        let instance = |(other, id): (&String, &u8)| {
            if at_end { format!("{{\"x\":{other}, \"user\" : {id} }}") } else { format!("{{\"user\":{id},\"x\" :{other}}}") }
        };
        let instances: Vec<_> = others.iter().zip(&ids).map(instance).collect();
        let body = format!("\n{{\"more\":{more},\"instances\" : [ {}], \"last\":{more}}} ", instances.join(" , "));
        let request = read(&hydration, &body).unwrap();
        let keys: Vec<String> = super::asked(&hydration, &request).iter().map(|words| words[1].clone()).collect();
        let values: Vec<[&str; 2]> = keys.iter().map(|key| [&key["user:".len()..], "0.5"]).collect();
        let rows: Vec<&[&str]> = values.iter().map(|row| &row[..]).collect();
        let filled = hydration.fill(&request, &answer(&rows), 0).unwrap();
        let edited = std::str::from_utf8(&filled.body).unwrap();
        prop_assert!(is_only_added(&body, edited));
        let mut expected = parsed(&body);
        for (instance, id) in expected["instances"].as_array_mut().unwrap().iter_mut().zip(&ids) {
            instance["features"] = json!([f64::from(*id), 0.5]);
        }
        prop_assert_eq!(parsed(edited), expected);
        // byte for byte: what was added is the only difference, wherever it is
        let mut without = edited.to_owned();
        for id in 0..4 {
            without = without.replace(&format!(",\"features\":[{id}.0,0.5]"), "");
        }
        prop_assert_eq!(without, body);
    }

    #[test]
    fn a_tensor_is_the_last_of_the_inputs(
        others in prop::collection::vec(json_text(2), 0..4),
        more in json_text(3),
        ids in prop::collection::vec(0_i64..4, 1..6),
        at in 0_usize..5,
    ) {
        let hydration = hydration(json!({}));
        let tensor = |(n, other): (usize, &String)| format!("{{ \"datatype\":\"FP32\", \"parameters\":{other},\"name\" : \"in{n}\"}}");
        let mut inputs: Vec<_> = others.iter().enumerate().map(tensor).collect();
        let data: Vec<_> = ids.iter().map(|id| format!(" {id}")).collect();
        let users = format!("{{\"name\":\"\\u0075ser\",\"shape\":[{}, 1],\"datatype\":\"INT64\",\"data\":[{}] }}", ids.len(), data.join(","));
        inputs.insert(at.min(inputs.len()), users);
        let body = format!("{{\"id\":\"1\",\"inputs\":[{} ],\"parameters\":{more}}}", inputs.join(",\n"));
        let request = read(&hydration, &body).unwrap();
        let keys: Vec<String> = super::asked(&hydration, &request).iter().map(|words| words[1].clone()).collect();
        let values: Vec<[&str; 2]> = keys.iter().map(|key| [&key["user:".len()..], "0.5"]).collect();
        let rows: Vec<&[&str]> = values.iter().map(|row| &row[..]).collect();
        let edited = hydration.fill(&request, &answer(&rows), 0).unwrap().body;
        let edited = std::str::from_utf8(&edited).unwrap();
        let mut expected = parsed(&body);
        let data: Vec<f64> = ids.iter().flat_map(|id| [f64::from(i32::try_from(*id).unwrap()), 0.5]).collect();
        let features = json!({"name": "features", "shape": [ids.len(), 2], "datatype": "FP32", "data": data});
        expected["inputs"].as_array_mut().unwrap().push(features);
        prop_assert_eq!(parsed(edited), expected);
        let from = edited.find(",{\"name\":\"features\"").unwrap();
        let to = from + edited[from..].find("]}").unwrap() + 2;
        prop_assert_eq!([&edited[..from], &edited[to..]].concat(), body);
    }

    #[test]
    fn no_body_breaks_it(body in prop::collection::vec(any::<u8>(), 0..64), text in json_text(4)) {
        for of in [hydration(json!({})), of_instances(json!({}))] {
            let _ = read(&of, &body);
            let _ = read(&of, &text);
            let _ = read(&of, format!("{{\"inputs\":{text}}}"));
            let _ = read(&of, format!("{{\"instances\":{text}}}"));
        }
    }
}
