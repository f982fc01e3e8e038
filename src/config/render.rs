//! The effective configuration as text: YAML with a comment after each value. Callers pass masked values; nothing is masked here.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use serde_json::Value as Json;

use super::fixed::FixedSettings;
use super::ordered::Ordered;
use super::path::Path;
use super::sources::reads_as;

/// The column at which comments begin, unless a value is too long for it.
const COMMENTS_AT: usize = 44;

/// The origin of the value at `path`.
pub(crate) fn origin<'o>(origins: &'o BTreeMap<String, String>, path: &str) -> &'o str {
    origins.get(path).map_or("default", String::as_str)
}

/// `config` as YAML, in the order of its fields.
pub(crate) fn yaml(config: &impl Serialize, origins: &BTreeMap<String, String>, fixed: &FixedSettings) -> String {
    let mut writer = Writer { origins, fixed, text: String::new() };
    if let Ordered::Section(section) = Ordered::of(config) {
        for (key, value) in &section {
            writer.entry(key, value, &Path::default().key(key), "");
        }
    }
    writer.text
}

struct Writer<'o> {
    origins: &'o BTreeMap<String, String>,
    fixed: &'o FixedSettings,
    text: String,
}

impl Writer<'_> {
    /// Writes an entry. `indent` precedes the key: spaces, and a dash if the entry is the first of a list's element.
    fn entry(&mut self, key: &str, value: &Ordered, path: &Path, indent: &str) {
        let key = key_text(key);
        let deeper = format!("{}  ", indent.replace('-', " "));
        match value {
            Ordered::Section(section) if !section.is_empty() => {
                self.heading(&format!("{indent}{key}:"));
                for (inner, value) in section {
                    self.entry(inner, value, &path.key(inner), &deeper);
                }
            }
            Ordered::List(list) if !list.is_empty() => {
                self.heading(&format!("{indent}{key}:"));
                for (index, element) in list.iter().enumerate() {
                    self.element(element, &path.index(index), &deeper);
                }
            }
            leaf => self.leaf(&format!("{indent}{key}: "), leaf, path),
        }
    }

    fn element(&mut self, element: &Ordered, path: &Path, indent: &str) {
        let Ordered::Section(section) = element else { return self.leaf(&format!("{indent}- "), element, path) };
        for (at, (key, value)) in section.iter().enumerate() {
            let dash = if at == 0 { "- " } else { "  " };
            self.entry(key, value, &path.key(key), &format!("{indent}{dash}"));
        }
    }

    /// Writes a line that begins with `start` and ends with where the value comes from.
    fn leaf(&mut self, start: &str, leaf: &Ordered, path: &Path) {
        let value = match leaf {
            Ordered::Section(_) => "{}".to_owned(),
            Ordered::List(_) => "[]".to_owned(),
            Ordered::Leaf(value) => scalar(value),
        };
        let line = format!("{start}{value}");
        let origin = origin(self.origins, &path.to_string()).replace(char::is_control, " ");
        let fixed = if self.fixed.around(path).is_some() { ", fixed at the start" } else { "" };
        let _ = writeln!(self.text, "{line:<COMMENTS_AT$} # {origin}{fixed}");
    }

    fn heading(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

fn scalar(value: &Json) -> String {
    match value {
        // quoted only where bare text would read as something else
        Json::String(text) if reads_as(&format!("k: {text}  # comment"), "k", text) => text.clone(),
        Json::String(text) => quoted(text),
        other => other.to_string(),
    }
}

fn key_text(key: &str) -> String {
    if reads_as(&format!("{key}: v"), key, "v") { key.to_owned() } else { quoted(key) }
}

/// In double quotes, with everything outside printable ASCII escaped.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            ' '..='~' => write!(out, "{c}"),
            other => write!(out, "\\U{:08X}", u32::from(other)),
        };
    }
    out.push('"');
    out
}
