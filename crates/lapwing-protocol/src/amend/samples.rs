//! JSON as servers write it, for the tests: any value, and objects in several spacings.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Any value, a few levels deep; strings hold what confuses scanners.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zé\"\\\\{}\\[\\]:,\n\r ]{0,12}".prop_map(Value::from),
        Just(json!("\"usage\":null,\"choices\":[]")),
        Just(json!("data: [DONE]\n\n")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z\"_]{0,6}", inner), 0..4)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}

/// 0: compact; 1: with a space after colons and commas, as Python writes; 2: one member per line.
pub(crate) fn any_spacing() -> impl Strategy<Value = u8> {
    0..3_u8
}

/// An object of `members` in that spacing.
pub(crate) fn spaced(members: &[(String, Value)], spacing: u8) -> String {
    let (open, colon, comma, close) =
        [("{", ":", ",", "}"), ("{", ": ", ", ", "}"), ("{\n  ", ": ", ",\n  ", "\n}")][usize::from(spacing)];
    let members: Vec<String> = members.iter().map(|(name, value)| format!("{}{colon}{value}", json!(name))).collect();
    format!("{open}{}{close}", members.join(comma))
}
