//! The JSON Schema of what `/config` shows, made of the keys of the configuration and of their defaults.

use serde_json::{Map, Value as Json, json};

use super::schema::Schema;

/// The schema of the effective configuration with origins and warnings, and of what became of reloads. `defaults` is the configuration that has no file.
pub(crate) fn shown(schema: &Schema, defaults: &Json) -> Json {
    let origin = "`default`, `file …`, `env …` or `flag …`";
    json!({
        "type": "object",
        "description": "docs/CONFIGURATION.md explains every key",
        "required": ["values", "origins", "warnings", "generation", "loaded_unix_ns", "needs_restart", "failed_reload"],
        "properties": {
            "values": value(schema, Some(defaults)),
            "origins": {"type": "object", "description": "where each value comes from, by its path", "additionalProperties": {"type": "string", "description": origin}},
            "warnings": {"type": "array", "items": {"type": "string"}},
            "generation": {"type": "integer", "minimum": 1, "description": "1 at the start, and one more for each reload that succeeded"},
            "loaded_unix_ns": {"type": "integer", "minimum": 0},
            "needs_restart": {"type": "array", "items": {"type": "string"}, "description": "settings of which the sources have another value, by path"},
            "failed_reload": {
                "type": ["object", "null"],
                "description": "the last reload, if it was refused",
                "required": ["unix_ns", "faults"],
                "properties": {"unix_ns": {"type": "integer", "minimum": 0}, "faults": {"type": "array", "items": {"type": "string"}}},
            },
        },
    })
}

fn value(schema: &Schema, default: Option<&Json>) -> Json {
    match schema {
        Schema::Section { keys, .. } => {
            let of = |key: &str| default.and_then(|default| default.get(key));
            let properties: Map<_, _> = keys.iter().map(|(key, node)| (key.clone(), value(node, of(key)))).collect();
            json!({"type": types(&["object"], default), "properties": properties})
        }
        Schema::List { element, .. } => json!({"type": types(&["array"], default), "items": value(element, None)}),
        Schema::Named { value: inner, .. } => {
            json!({"type": types(&["object"], default), "additionalProperties": value(inner, None)})
        }
        Schema::Number => json!({"type": types(&["number", "null"], default)}),
        Schema::Flag => json!({"type": types(&["boolean", "null"], default)}),
        Schema::Secret => json!({"type": types(&["string", "null"], default), "description": "masked"}),
        // text in a file; shown as what it stands for
        Schema::Text | Schema::Literal => json!({"type": types(&["string", "number", "boolean", "null"], default)}),
    }
}

/// The types of a value: `known`, and that of the default.
fn types(known: &[&'static str], default: Option<&Json>) -> Vec<&'static str> {
    let of_default = default.map(|default| match default {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    });
    known.iter().copied().chain(of_default.filter(|of| !known.contains(of))).collect()
}
