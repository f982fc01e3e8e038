//! The tables of docs/CONFIGURATION.md: a row for each key, made from the file's JSON Schema and the ranges of the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use schemars::JsonSchema;
use serde_json::Value as Json;

use super::file_schema::{self, is_off, properties, value_part};
use super::fixed::FixedSettings;
use super::ordered::Ordered;
use super::path::Path;
use super::schema::Schema;
use lapwing_settings::{Section, ValueRange};

const HEADER: &str = "key | kind | default | range | what it is\n---|---|---|---|---\n";
const BEGIN: &str = "<!-- settings: ";
const END: &str = "<!-- end of settings -->";

/// The settings of a whole configuration as rows of tables.
#[derive(Debug)]
pub struct SettingTables {
    /// Path and row, in the order of the sections.
    rows: Vec<(String, String)>,
}

impl SettingTables {
    /// The rows of all keys of `T`. Those with a flag of the command line are marked.
    #[must_use]
    pub fn of<T: Section + JsonSchema>(flags: &BTreeSet<String>) -> Self {
        let ranges = file_schema::ranges::<T>();
        let mut writer = Writer {
            ranges: &ranges,
            flags,
            fixed: FixedSettings::of::<T>(),
            rows: Vec::new(),
            records: Vec::new(),
            choices: Vec::new(),
        };
        writer.section(&file_schema::of::<T>(), &Schema::of::<T>(), &Path::default());
        let mut rows = writer.rows;
        // JSON has the keys of a section by name; the order of the fields tells more
        let mut order = Vec::new();
        Ordered::of(&T::default()).leaves(&Path::default(), &mut |path| order.push(path.to_string()));
        rows.sort_by_key(|(path, _)| order.iter().position(|leaf| path == leaf || is_within(path, leaf)));
        Self { rows }
    }

    /// A table for each section, under its name.
    #[must_use]
    pub fn markdown(&self) -> String {
        let (mut text, mut before) = (String::new(), None);
        for (path, row) in &self.rows {
            let section = path.split_once('.').map_or("", |(section, _)| section);
            if before.replace(section) != Some(section) {
                let name = if section.is_empty() { "Top level".to_owned() } else { format!("`{section}`") };
                let _ = write!(text, "{}## {name}\n\n{HEADER}", if text.is_empty() { "" } else { "\n" });
            }
            text.push_str(row);
        }
        text
    }

    /// The page with its tables brought up to date: what stands between `<!-- settings: SECTION -->` and the end mark is replaced.
    ///
    /// # Errors
    ///
    /// If a mark has no end, or a key has no table.
    pub fn fill(&self, page: &str) -> Result<String, String> {
        let names: Vec<&str> = page.split(BEGIN).skip(1).filter_map(|rest| Some(rest.split_once(" -->")?.0)).collect();
        let mut parts = page.split(BEGIN);
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once(" -->").ok_or("a mark without end")?;
            let (_, rest) = rest.split_once(END).ok_or_else(|| format!("{BEGIN}{name} --> has no {END}"))?;
            let _ = write!(filled, "{BEGIN}{name} -->\n{HEADER}");
            self.rows.iter().filter(|(path, _)| table_of(path, &names) == Some(name)).for_each(|(_, row)| filled.push_str(row));
            let _ = write!(filled, "{END}{rest}");
        }
        match self.rows.iter().find(|(path, _)| !is_of_record(path) && table_of(path, &names).is_none()) {
            Some((path, _)) => Err(format!("no table for {path}: the page needs {BEGIN}SECTION --> and {END}")),
            None => Ok(filled),
        }
    }
}

/// The table that has the key: that of the innermost section, `top level` for keys in none. Keys of records (elements of lists, what
/// stands under a name) have a table only where the page asks for it.
fn table_of<'n>(path: &str, names: &[&'n str]) -> Option<&'n str> {
    if !path.contains(['.', '[']) {
        return names.iter().copied().find(|name| *name == "top level");
    }
    let innermost = names.iter().copied().filter(|name| is_within(path, name)).max_by_key(|name| name.len());
    innermost.filter(|name| is_of_record(path) == is_of_record(&format!("{name}.")))
}

/// Whether a key is one of a record.
fn is_of_record(path: &str) -> bool {
    path.contains("[].") || path.contains(".*.")
}

/// Whether the path is that of a part of `section`.
fn is_within(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.starts_with(['.', '[']))
}

struct Writer<'w> {
    ranges: &'w BTreeMap<String, ValueRange>,
    flags: &'w BTreeSet<String>,
    fixed: FixedSettings,
    rows: Vec<(String, String)>,
    /// The records that have their rows, and where.
    records: Vec<(Json, String)>,
    /// The choices whose names have been explained.
    choices: Vec<String>,
}

impl Writer<'_> {
    fn section(&mut self, node: &Json, forms: &Schema, path: &Path) {
        for (key, forms) in forms.keys() {
            let (node, path) = (&value_part(node)["properties"][key], path.key(key));
            match properties(node) {
                // a section, or a record that stands alone
                Some(_) if value_part(node)["title"].is_null() => self.section(node, forms, &path),
                _ => self.setting(node, forms, &path),
            }
        }
    }

    fn setting(&mut self, node: &Json, forms: &Schema, path: &Path) {
        let value = value_part(node);
        let (record, record_forms, inner) = match forms {
            Schema::List { element, .. } => (&value["items"], &**element, path.index(0)),
            Schema::Named { value: of_names, .. } => (&value["additionalProperties"], &**of_names, path.key("*")),
            _ => (value, forms, path.clone()),
        };
        let keys = properties(record).map(|keys| Json::Object(keys.clone()));
        let text = self.what(node, path);
        let known = keys.as_ref().and_then(|keys| self.records.iter().find(|(record, _)| record == keys));
        let what = match (known, &keys) {
            (Some((_, at)), _) => format!("{text} Keys: as of `{at}`."),
            (None, Some(_)) if record_forms.keys().count() > 0 => {
                let names: Vec<_> = record_forms.keys().map(|(key, _)| format!("`{key}`")).collect();
                format!("{text} Keys: {}.", names.join(", "))
            }
            _ => text,
        };
        let is_known = known.is_some();
        let name = shown(path);
        let fixed = if self.fixed.around(path).is_some() { "†" } else { "" };
        let flag = if self.flags.contains(&name) { " ⚑" } else { "" };
        let default = default_of(&node["default"]);
        let range = self.ranges.get(&path.to_string()).map_or_else(String::new, |(low, high)| {
            let dash = if low.starts_with('-') { " to " } else { "–" };
            format!("{}{dash}{}", grouped(low), grouped(high))
        });
        let cells = [format!("`{name}`{fixed}{flag}"), kind_of(node), default, range, what];
        self.rows.push((name.clone(), format!("{}\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))));
        if let (Some(keys), false) = (keys, is_known) {
            self.records.push((keys, name));
            self.section(record, record_forms, &inner);
        }
    }

    /// The description, and what the names of a choice mean.
    fn what(&mut self, node: &Json, path: &Path) -> String {
        let value = value_part(node);
        let text = node["description"].as_str().or(value["description"].as_str()).unwrap_or_default();
        let range = self.ranges.get(&path.to_string()).map(|(low, high)| format!(" Range: {low} to {high}."));
        let mut what = range.and_then(|range| text.strip_suffix(&range)).unwrap_or(text).replace("\n\n", " ");
        let choices: Vec<_> =
            value["oneOf"].as_array().into_iter().flatten().filter(|choice| choice["const"].is_string()).collect();
        // short meanings say no more than the names
        let is_plain =
            choices.iter().all(|choice| choice["description"].as_str().is_none_or(|text| text.split(' ').count() <= 5));
        let kind = kind_of(value);
        let is_told = is_of_record(&format!("{}.", shown(path))) && self.choices.contains(&kind);
        self.choices.push(kind);
        for choice in choices.iter().filter(|_| !is_plain && !is_told) {
            let (name, meaning) = (choice["const"].as_str(), choice["description"].as_str());
            let _ = write!(what, " `{}`: {}", name.unwrap_or_default(), meaning.unwrap_or_default());
        }
        linked(&what.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The path as it is written: elements and names that the user chooses have no number.
fn shown(path: &Path) -> String {
    path.to_string().replace("[0]", "[]")
}

/// What a key holds, in a few words.
fn kind_of(node: &Json) -> String {
    let branches = node["anyOf"].as_array().into_iter().flatten();
    let value = value_part(node);
    if branches.into_iter().any(is_off) {
        return format!("{} or off", kind_of(value));
    }
    if let Some(title) = value["title"].as_str() {
        return title.to_owned();
    }
    let consts = value["oneOf"].as_array().into_iter().flatten().filter_map(|choice| choice["const"].as_str());
    let names: Vec<&str> = consts.chain(value["enum"].as_array().into_iter().flatten().filter_map(Json::as_str)).collect();
    if let Some((last, others)) = names.split_last() {
        let others = others.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return if others.is_empty() { format!("`{last}`") } else { format!("{others} or `{last}`") };
    }
    let several = |kind: String| match kind.strip_suffix("um") {
        _ if kind.contains('`') => kind,
        _ if kind.starts_with("list of ") => kind.replacen("list of", "lists of", 1),
        Some(stem) => format!("{stem}a"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    if value["items"].is_object() {
        return format!("list of {}", several(kind_of(&value["items"])));
    }
    if value["additionalProperties"].is_object() {
        return format!("{} by name", several(kind_of(&value["additionalProperties"])));
    }
    let is = |name: &str| file_schema::accepts(value, name);
    if is("string") {
        "text".to_owned()
    } else if is("boolean") {
        "`true` or `false`".to_owned()
    } else {
        "number".to_owned()
    }
}

fn default_of(default: &Json) -> String {
    match default {
        Json::Null => String::new(),
        Json::String(text) if text.is_empty() => String::new(),
        Json::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// Numbers of five digits and more, with commas.
fn grouped(text: &str) -> String {
    let digits = text.len();
    if digits < 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.to_owned();
    }
    if digits > 10 {
        return text.parse::<f64>().map_or_else(|_| text.to_owned(), |number| format!("{number:e}"));
    }
    let comma = |at: usize| at > 0 && (digits - at).is_multiple_of(3);
    text.char_indices().flat_map(|(at, digit)| comma(at).then_some(',').into_iter().chain([digit])).collect()
}

/// With links to the other pages, which lie beside this one.
fn linked(text: &str) -> String {
    let mut parts = text.split("docs/");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let _ = match part.split_once(".md") {
            Some((page, rest)) => write!(linked, "[{page}.md]({page}.md){rest}"),
            None => write!(linked, "docs/{part}"),
        };
    }
    linked
}
