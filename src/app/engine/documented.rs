//! Checks that docs/ENGINE.md describes what the commands print.

use std::path::Path;

/// Asserts that docs/ENGINE.md names every field of an object, except the fields below `but`.
pub(crate) fn documented(value: &serde_json::Value, but: &[&str]) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ENGINE.md")).unwrap();
    fn hold(value: &serde_json::Value, but: &[&str], text: &str) {
        for (name, value) in value.as_object().into_iter().flatten() {
            assert!(text.contains(&format!("`{name}`")), "docs/ENGINE.md does not tell of {name}");
            if !but.contains(&name.as_str()) {
                hold(value, but, text);
            }
        }
        value.as_array().into_iter().flatten().for_each(|value| hold(value, but, text));
    }
    hold(value, but, &text);
}
