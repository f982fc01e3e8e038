//! The JSON Schema (draft 2020-12) of the configuration file, made from the types of the sections: keys, kinds, defaults and
//! descriptions by `schemars`, ranges by the sections' own checks ([`Checks::ranges_of`]).
//!
//! It takes every file that the loader takes, and refuses unknown keys and values of the wrong kind. What only a check can see
//! (settings that contradict one another, the range of a period) it leaves to `lapwing check`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use super::path::{Path, Step};
use super::schema::Schema;
use lapwing_settings::{Checks, Section, Size, ValueRange};

/// The name that stands for every name that the user chooses.
const ANY_NAME: &str = "*";
/// Keys without a default: [`Section::default`] has a value in their place.
const REQUIRED: [&str; 1] = ["upstream"];

/// The schema of a file from which a `T` is loaded.
pub(crate) fn of<T: Section + JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let forms = Schema::of::<T>();
    let completer = Completer { ranges: ranges::<T>() };
    completer.complete(&mut schema, &forms, &Path::default());
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "The configuration of Lapwing".into());
        root.insert(
            "description".to_owned(),
            "Only `upstream` is required; docs/CONFIGURATION.md explains how settings work together.".into(),
        );
    }
    for key in REQUIRED {
        if let Some(property) = schema["properties"].get_mut(key).and_then(Json::as_object_mut) {
            property.remove("default");
        }
    }
    schema
}

/// The ranges that the checks of a `T` know, by path. Lists and names have one element: the smallest that can be read.
pub(crate) fn ranges<T: Section>() -> BTreeMap<String, ValueRange> {
    let mut specimen = serde_json::to_value(T::default()).unwrap_or_default();
    Schema::of::<T>().fill(&mut specimen, ANY_NAME);
    let specimen: T = serde_json::from_value(specimen).unwrap_or_default();
    Checks::ranges_of(|checks| specimen.check(checks))
}

/// The part of a schema that describes a value, not that the value may be missing or off.
pub(crate) fn value_part(node: &Json) -> &Json {
    value_branch(node).map_or(node, |at| &node["anyOf"][at])
}

fn value_part_mut(node: &mut Json) -> &mut Json {
    match value_branch(node) {
        Some(at) => &mut node["anyOf"][at],
        None => node,
    }
}

/// The place of the one branch beside those that stand for no value.
fn value_branch(node: &Json) -> Option<usize> {
    let branches = node["anyOf"].as_array()?;
    let mut values = branches.iter().enumerate().filter(|(_, branch)| !is_absence(branch));
    let (at, _) = values.next().filter(|_| branches.iter().any(is_absence))?;
    values.next().is_none().then_some(at)
}

/// Whether a branch is `null` or off.
fn is_absence(branch: &Json) -> bool {
    branch["type"] == "null" || is_off(branch)
}

/// Whether a branch is what turns a setting off.
pub(crate) fn is_off(branch: &Json) -> bool {
    branch["enum"].as_array().is_some_and(|names| names.first().is_some_and(|name| name == "off"))
}

/// Adds to the schema of the types what they do not show.
struct Completer {
    ranges: BTreeMap<String, ValueRange>,
}

impl Completer {
    fn complete(&self, node: &mut Json, forms: &Schema, path: &Path) {
        flow_description(node);
        let range = self.ranges.get(&path.to_string());
        if let Some(range) = range {
            set_range(node, range);
        }
        let node = value_part_mut(node);
        flow_description(node);
        node.get_mut("oneOf").and_then(Json::as_array_mut).into_iter().flatten().for_each(flow_description);
        if let Some(node) = node.as_object_mut() {
            // of the types that serde counts with, not of the values
            node.remove("format");
        }
        match forms {
            Schema::Section { .. } => self.section(node, forms, path),
            Schema::List { element, .. } => self.complete(&mut node["items"], element, &path.index(0)),
            Schema::Named { value, .. } => {
                let of_names = &mut node["additionalProperties"];
                self.complete(of_names, value, &path.key(ANY_NAME));
                allow_null(of_names);
            }
            Schema::Text => widen(node, &["string", "number"]),
            Schema::Literal => widen(node, &["string", "number", "boolean"]),
            Schema::Number | Schema::Flag | Schema::Secret => {}
        }
    }

    fn section(&self, node: &mut Json, forms: &Schema, path: &Path) {
        let Some(section) = node.as_object_mut() else { return };
        // those of the keys say it
        section.remove("default");
        section.insert("additionalProperties".to_owned(), false.into());
        let Some(properties) = section.get_mut("properties").and_then(Json::as_object_mut) else { return };
        for (key, property) in properties {
            if let Some(inner) = forms.step(&Step::Key(key.clone())) {
                self.complete(property, inner, &path.key(key));
            }
            let is_in_list = path.0.iter().any(|step| matches!(step, Step::Index(_)));
            if !is_in_list {
                // a key without a value counts as not given
                allow_null(property);
            }
        }
    }
}

/// Joins the lines of a comment to paragraphs.
fn flow_description(node: &mut Json) {
    if let Some(text) = node.get_mut("description").and_then(|text| text.as_str().map(str::to_owned)) {
        let paragraphs: Vec<String> =
            text.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        node["description"] = paragraphs.join("\n\n").into();
    }
}

/// Numbers get bounds. A range of texts (periods, sizes) is part of the description, because no schema compares texts.
fn set_range(node: &mut Json, (low, high): &ValueRange) {
    let value = value_part(node);
    let numbers = match (value["title"].as_str(), accepts(value, "number") || accepts(value, "integer")) {
        (Some("size"), _) => {
            let bytes = |text: &str| text.parse::<Size>().ok().map(|size| Json::from(size.get()));
            bytes(low).zip(bytes(high))
        }
        (_, true) => number(low).zip(number(high)),
        (_, false) => None,
    };
    if accepts(value, "string") && node.get("description").is_some() {
        let text = node["description"].as_str().unwrap_or_default();
        node["description"] = format!("{text} Range: {low} to {high}.").into();
    }
    if let Some((low, high)) = numbers {
        let value = value_part_mut(node);
        let value = match value["anyOf"].as_array().and_then(|branches| branches.iter().position(|one| accepts(one, "number"))) {
            Some(at) => &mut value["anyOf"][at],
            None => value,
        };
        let is_within = |given: &Json| given.as_f64() >= low.as_f64() && given.as_f64() <= high.as_f64();
        if let Some(examples) = value.get_mut("examples").and_then(Json::as_array_mut) {
            examples.retain(|example| !example.is_number() || is_within(example));
        }
        let is_out = value["default"].is_number() && !is_within(&value["default"]);
        if let Some(value) = value.as_object_mut() {
            if is_out {
                // stands for a key that is required
                value.remove("default");
            }
            value.insert("minimum".to_owned(), low);
            value.insert("maximum".to_owned(), high);
        }
    }
}

fn number(text: &str) -> Option<Json> {
    text.parse::<i64>().map(Json::from).ok().or_else(|| text.parse::<f64>().ok().map(Json::from))
}

/// Whether values of this type are accepted.
pub(crate) fn accepts(node: &Json, name: &str) -> bool {
    let is_it = |of: &Json| of == name;
    let own = is_it(&node["type"]) || node["type"].as_array().is_some_and(|names| names.iter().any(is_it));
    own || node["anyOf"].as_array().is_some_and(|branches| branches.iter().any(|branch| accepts(branch, name)))
}

/// Text that has no form of its own may be written as another scalar.
fn widen(node: &mut Json, names: &[&str]) {
    let has_form = |section: &Map<String, Json>| section.contains_key("pattern") || section.contains_key("enum");
    let Some(section) = node.as_object_mut().filter(|section| !has_form(section)) else { return };
    match section.get("type") {
        Some(Json::String(name)) if name == "string" => section.insert("type".to_owned(), names.into()),
        Some(Json::Array(own)) if *own == ["string", "null"] => {
            let with_null: Vec<_> = names.iter().copied().chain(["null"]).collect();
            section.insert("type".to_owned(), with_null.into())
        }
        _ => return,
    };
}

fn allow_null(node: &mut Json) {
    let Some(object) = node.as_object_mut() else { return };
    let branches = ["anyOf", "oneOf"].iter().find_map(|key| object.get(*key)).and_then(Json::as_array);
    if branches.is_some_and(|branches| branches.iter().any(|branch| branch["type"] == "null")) {
        return;
    }
    match object.get_mut("type") {
        Some(Json::Array(names)) if !names.contains(&"null".into()) => names.push("null".into()),
        Some(Json::String(name)) => {
            let names = json!([name, "null"]);
            object.insert("type".to_owned(), names);
        }
        _ => {}
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(branches) = object.get_mut(key).and_then(Json::as_array_mut) {
            branches.push(json!({"type": "null"}));
        }
    }
    if let Some(names) = object.get_mut("enum").and_then(Json::as_array_mut) {
        names.push(Json::Null);
    }
}

/// The keys of a section's schema.
pub(crate) fn properties(node: &Json) -> Option<&Map<String, Json>> {
    value_part(node)["properties"].as_object()
}
