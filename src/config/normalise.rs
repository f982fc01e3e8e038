//! Checks that sections are sections and lists are lists, and turns numbers into text where a setting is text.
//!
//! Without this, serde's derived code would read a list as a section (by position) and a number as a variant (by index).

use figment::value::Value;

use super::decode::Faults;
use super::path::Path;
use super::schema::Schema;

/// Brings `tree` into the shape of `schema`. A value of another shape is a fault and is removed.
pub(crate) fn normalise(tree: &mut Value, schema: &Schema, faults: &mut Faults<'_>) {
    walk(tree, &Path::default(), schema, faults);
}

fn walk(tree: &mut Value, path: &Path, schema: &Schema, faults: &mut Faults<'_>) {
    let Some(value) = path.get_mut(tree) else { return };
    match (schema, value) {
        (Schema::Section { .. } | Schema::Named { .. }, Value::Dict(_, dict)) => {
            let keys: Vec<String> = dict.keys().cloned().collect();
            for path in keys.iter().map(|key| path.key(key)) {
                // unknown keys are reported after decoding
                if let Some(inner) = path.0.last().and_then(|step| schema.step(step)) {
                    walk(tree, &path, inner, faults);
                }
            }
        }
        (Schema::List { element, .. }, Value::Array(_, list)) => {
            for index in 0..list.len() {
                walk(tree, &path.index(index), element, faults);
            }
        }
        (Schema::Section { what, .. }, _) => faults.refuse(tree, path, format!("must be {what}")),
        (Schema::Named { .. }, _) => faults.refuse(tree, path, "must be a section of keys"),
        (Schema::List { .. }, _) => faults.refuse(tree, path, "must be a list"),
        (Schema::Text, value) => number_to_text(value),
        (Schema::Literal, value) => {
            if let Value::Bool(tag, is_true) = value {
                *value = Value::String(*tag, is_true.to_string());
            }
            number_to_text(value);
        }
        // a secret that YAML read as a number may have lost leading zeros: `Secret` refuses it
        (Schema::Number | Schema::Flag | Schema::Secret, _) => {}
    }
}

fn number_to_text(value: &mut Value) {
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
