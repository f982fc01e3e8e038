//! Makes what was given fit for reading by type: sections are sections, lists are lists, and numbers are text where a
//! setting is text.
//!
//! Derived readers would otherwise take a list for a section (by position) and a number for a name (by its place).

use figment::value::Value;
use serde_json::Value as Json;

use super::HEADERS;
use super::decode::Faults;
use super::path::Path;

/// Shapes `tree` after the defaults; what cannot be shaped is a fault, and taken out.
pub(super) fn shape(tree: &mut Value, defaults: &Json, faults: &mut Faults) {
    if let (Value::Dict(_, dict), Json::Object(defaults)) = (&*tree, defaults) {
        let keys: Vec<String> = dict.keys().cloned().collect();
        for key in keys {
            walk(tree, &Path::default().key(&key), defaults.get(&key), faults);
        }
    }
}

fn walk(tree: &mut Value, path: &Path, default: Option<&Json>, faults: &mut Faults) {
    let Some(value) = path.get_mut(tree) else { return };
    match (default, value) {
        (Some(Json::Object(defaults)), Value::Dict(_, dict)) => {
            let keys: Vec<String> = dict.keys().cloned().collect();
            for key in keys {
                walk(tree, &path.key(&key), defaults.get(&key), faults);
            }
        }
        (Some(Json::Object(_)), _) => faults.refuse(tree, path, "must be a section of keys"),
        (Some(Json::Array(_)), Value::Array(_, list)) => {
            for index in 0..list.len() {
                rule(tree, &path.index(index), faults);
            }
        }
        (Some(Json::Array(_)), _) => faults.refuse(tree, path, "must be a list"),
        (Some(Json::Number(_) | Json::Bool(_)), _) => {}
        // a secret that is a number may have lost its leading zeros: it says so itself
        _ if path.is_in(HEADERS) => {}
        (_, value) => as_text(value),
    }
}

/// An element of a list is a section; its parts are text.
fn rule(tree: &mut Value, path: &Path, faults: &mut Faults) {
    match path.get_mut(tree) {
        Some(Value::Dict(_, dict)) => dict.values_mut().for_each(|part| {
            if let Value::Bool(tag, is_true) = part {
                *part = Value::String(*tag, is_true.to_string());
            }
            as_text(part);
        }),
        _ => faults.refuse(tree, path, "must be a rule: name and/or attribute (and value), and stage"),
    }
}

fn as_text(value: &mut Value) {
    if !matches!(value, Value::Num(..)) {
        return;
    }
    let text = match (value.to_u128(), value.to_i128()) {
        (Some(n), _) => n.to_string(),
        (None, Some(n)) => n.to_string(),
        (None, None) => value.to_f64().map_or_else(String::new, |n| n.to_string()),
    };
    *value = Value::String(value.tag(), text);
}
