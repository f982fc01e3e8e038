//! What tests of the whole crate share: rules and requests.

mod asking;
mod bodies;
mod faults;
mod refusing;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::*;

/// A rule for `POST /v2/models/m/infer` with these parts instead of its own.
fn rule(with: Value) -> HydrateRule {
    let mut rule = json!({"match": {"model": "m"}, "entity": [{"name": "user", "tensor": "user"}],
        "store": {"kind": "redis", "url": "redis://127.0.0.1", "key": "user:{user}"},
        "features": [{"name": "age", "default": -1.0}, {"name": "risk", "default": 0.5}], "into": {"tensor": "features"}});
    rule.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    serde_json::from_value(rule).unwrap()
}

fn hydration(with: Value) -> Hydration {
    Hydration::new(&rule(with)).unwrap()
}

/// What it makes of V1 requests.
fn of_instances(with: Value) -> Hydration {
    let mut all =
        json!({"entity": [{"name": "user", "pointer": "/instances/*/user"}], "into": {"pointer": "/instances/*/features"}});
    all.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    hydration(all)
}

fn read(hydration: &Hydration, body: impl AsRef<[u8]>) -> Result<HydratingRequest, HydratePassed> {
    hydration.read(Bytes::copy_from_slice(body.as_ref()))
}

/// An answer of Redis with these texts; `-` is null.
fn answer(rows: &[&[&str]]) -> HydrateAnswer {
    let value = |text: &&str| (*text != "-").then(|| Bytes::copy_from_slice(text.as_bytes()));
    HydrateAnswer::Redis(rows.iter().map(|row| row.iter().map(value).collect()).collect())
}

/// The words of each command that asks for what the request needs.
fn asked(hydration: &Hydration, request: &HydratingRequest) -> Vec<Vec<String>> {
    let HydrateQuestion::Redis(commands) = hydration.question(request) else { panic!("no Redis") };
    let words = |command: HydrateCommand| command.into_iter().map(|word| String::from_utf8(word).unwrap()).collect();
    commands.into_iter().map(words).collect()
}
