//! Each fault of the settings names its field, its value and the reason.

use serde_json::{Value, json};

use super::rule;
use crate::{HYDRATE, HydrateRule, Hydrator, check_hydrate};
use lapwing_settings::Checks;

fn faults(with: Value) -> Vec<String> {
    let mut checks = Checks::default();
    check_hydrate(&[rule(with)], &mut checks);
    checks.into_faults().iter().map(ToString::to_string).collect()
}

#[test]
fn the_keys_of_the_record_are_the_fields() {
    HYDRATE.assert_describes::<HydrateRule>();
}

#[test]
fn sound_rules_have_no_fault_and_can_be_used() {
    let feast = json!({"kind": "feast", "url": "rediss://store:6380", "project": "fraud", "key_version": "2", "max_age": "24h"});
    let features = json!([{"name": "stats:trips", "width": 3, "default": 0.0}]);
    for with in [
        json!({}),
        json!({"store": feast, "features": features, "on_miss": "default", "into": {"pointer": "/parameters/f", "datatype": "INT64"}}),
        json!({"store": {"kind": "feast", "url": "http://feast:6566"}, "features": features, "deadline": "20ms"}),
        json!({"store": {"url": "unix:/run/redis", "key": "{user}:{feature}", "encoding": "float32"}}),
    ] {
        assert_eq!(faults(with.clone()), Vec::<String>::new());
        assert!(Hydrator::new(&[rule(with)]).0.is_some());
    }
    assert!(Hydrator::new(&[]).0.is_none());
}

#[test]
fn each_fault_names_its_field_and_what_to_do() {
    let store = |more: Value| {
        let mut store = json!({"kind": "redis", "url": "redis://r", "key": "{user}"});
        store.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "store": store })
    };
    let feast = |more: Value| {
        let mut all = store(more);
        all["store"].as_object_mut().unwrap().remove("key");
        all["store"]["kind"] = "feast".into();
        all["features"] = json!([{"name": "a:b"}]);
        all
    };
    for (with, says) in [
        (json!({"match": {}}), "hydrate[0].match: needs at least one of"),
        (json!({"entity": []}), "hydrate[0].entity: 0: needs 1 to 8 parts"),
        (json!({"entity": [{"name": "user"}]}), "hydrate[0].entity[0]: needs either tensor or pointer"),
        (json!({"entity": [{"name": "user", "tensor": "u", "pointer": "/u"}]}), "hydrate[0].entity[0]: needs either"),
        (json!({"entity": [{"name": "", "tensor": "u"}]}), "hydrate[0].entity[0].name: must be a name"),
        (json!({"entity": [{"name": "user", "pointer": "u"}]}), "hydrate[0].entity[0].pointer: u: must be a JSON pointer"),
        (
            json!({"entity": [{"name": "user", "pointer": "/a/*/*"}]}),
            "hydrate[0].entity[0].pointer: /a/*/*: must have at most one *",
        ),
        (
            json!({"entity": [{"name": "user", "tensor": "u"}, {"name": "user", "tensor": "v"}]}),
            "hydrate[0].entity[1].name: user: is there twice",
        ),
        (store(json!({"key": "x"})), "hydrate[0].store.key: x: must have {user} in it"),
        (store(json!({"url": "http://r"})), "hydrate[0].store.url: http://r:80: must be redis://"),
        (store(json!({"project": "p"})), "hydrate[0].store.project: is only for Feast's Redis"),
        (store(json!({"max_age": "1h"})), "hydrate[0].store.max_age: is only for Feast's Redis"),
        (feast(json!({})), "hydrate[0].store.project: must be a name"),
        (feast(json!({"url": "http://f", "password_file": "/p"})), "hydrate[0].store.password_file: is only for Redis"),
        (store(json!({"url": "redis://u@r"})), "hydrate[0].store.password_file: is missing"),
        (store(json!({"tls": {"ca": "/ca"}})), "hydrate[0].store.tls: redis://r:6379: speaks no TLS"),
        (store(json!({"url": "rediss://r", "tls": {"key": "/k"}})), "hydrate[0].store.tls.certificate: off: is missing"),
        (
            store(json!({"url": "rediss://r", "tls": {"server_name": "r"}})),
            "hydrate[0].store.tls.server_name: r: is not for Redis",
        ),
        (feast(json!({"url": "http://f", "project": "p"})), "hydrate[0].store.project: is only for Feast's Redis"),
        (feast(json!({"project": "p", "max_age": "10ms"})), "hydrate[0].store.max_age: 10ms: must be between 1s"),
        (
            json!({"store": {"kind": "feast", "url": "http://f"}, "features": [{"name": "age"}]}),
            "hydrate[0].features[0].name: age: must be view:feature",
        ),
        (json!({"features": []}), "hydrate[0].features: 0: must be 1 to 256"),
        (json!({"features": [{"name": "a", "width": 0}]}), "hydrate[0].features[0].width: 0: must be between 1 and 4096"),
        (json!({"features": [{"name": "a"}, {"name": "a"}]}), "hydrate[0].features[1].name: a: is there twice"),
        (
            json!({"features": [{"name": "a"}], "on_miss": "default"}),
            "hydrate[0].features[0].default: is needed with on_miss: default",
        ),
        (
            json!({"features": [{"name": "a", "default": 0.5}], "into": {"tensor": "f", "datatype": "INT32"}}),
            "hydrate[0].features[0].default: 0.5: is no INT32",
        ),
        (
            json!({"features": [{"name": "a", "width": 4096}, {"name": "b"}]}),
            "hydrate[0].features: 4097: a row has at most 4096 numbers",
        ),
        (json!({"into": {}}), "hydrate[0].into: needs either tensor or pointer"),
        (json!({"into": {"pointer": "/instances/*"}}), "hydrate[0].into.pointer: /instances/*: must end in the name of a member"),
        (json!({"into": {"pointer": "/a/0"}}), "hydrate[0].into.pointer: /a/0: must end in the name"),
        (json!({"deadline": "1m"}), "hydrate[0].deadline: 1m: must be between 1ms and 10s"),
    ] {
        let found = faults(with);
        assert!(found.iter().any(|fault| fault.starts_with(says)), "{says}: {found:?}");
    }
}
