//! Injection into all that a text has, and its removal.

use serde_json::Value;

use crate::manifest::{Edit, Manifest, ManifestError};
use crate::options::InjectOptions;
use crate::plan::plan;
use crate::pod::{Object, has_known, objects};
use crate::record::Record;

/// What became of a text.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The text, with the changes.
    pub text: String,
    /// What became of each object with a pod in it, in their order.
    pub reports: Vec<InjectReport>,
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectReport {
    /// Its kind and name.
    pub title: String,
    /// What was done.
    pub verdict: InjectVerdict,
    /// Why so, and what is left to do.
    pub lines: Vec<String>,
}

/// What was done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectVerdict {
    /// Lapwing is in its pods.
    Injected,
    /// It was there already, as it would be injected now.
    Unchanged,
    /// Lapwing is out of its pods.
    Removed,
    /// It is not meant: it has no model server that is known, or was not named.
    Left,
    /// It cannot be done.
    Refused,
}

/// Puts Lapwing into the pods of a text: YAML or JSON, several documents, lists.
///
/// # Errors
///
/// If the text cannot be read, or not be changed without changing more than is meant.
pub fn inject(text: &str, options: &InjectOptions) -> Result<Injection, ManifestError> {
    let before = Manifest::read(text)?;
    // what an earlier injection did is undone first, so that this one finds what that one found
    let (clean, _) = without(&before)?;
    let found = objects(clean.values());
    let pods: Vec<&Object> = found.iter().filter(|object| object.pod().is_some()).collect();
    let (mut edits, mut reports) = (Vec::new(), Vec::new());
    for object in found.iter().filter(|object| object.pod().is_some() || is_named(object, options)) {
        let plan = plan(object, &found, options);
        let is_meant = is_named(object, options) || (options.workloads.is_empty() && pods.len() == 1);
        let (verdict, lines) = match plan {
            Ok(_) if !options.workloads.is_empty() && !is_named(object, options) => continue,
            Ok(plan) if is_meant || plan.is_known => {
                edits.extend(plan.edits);
                (InjectVerdict::Injected, plan.lines)
            }
            Err(reason) if is_meant || (options.workloads.is_empty() && has_model(object)) => {
                (InjectVerdict::Refused, vec![reason])
            }
            _ if !options.workloads.is_empty() => continue,
            _ => (
                InjectVerdict::Left,
                vec![format!("no model server that is known; to inject into it: --workload {}", object.title())],
            ),
        };
        reports.push(InjectReport { title: object.title(), verdict, lines });
    }
    for object in
        found.iter().filter(|object| object.pod().is_none() && !is_named(object, options) && makes_pods(object.value, 0))
    {
        let reason = "it is of a kind that makes its pods itself; what injects into those is `lapwing webhook`".to_owned();
        let verdict = if pods.is_empty() { InjectVerdict::Refused } else { InjectVerdict::Left };
        reports.push(InjectReport { title: object.title(), verdict, lines: vec![reason] });
    }
    let after = clean.edited(&edits)?;
    // also what the API server has filled in since is as it would be
    if before.values().zip(after.values()).all(|(before, after)| covers(before, after)) {
        for report in reports.iter_mut().filter(|report| report.verdict == InjectVerdict::Injected) {
            (report.verdict, report.lines) = (InjectVerdict::Unchanged, Vec::new());
        }
        return Ok(Injection { text: text.to_owned(), reports });
    }
    Ok(Injection { text: after.text().to_owned(), reports })
}

/// Takes Lapwing out of the pods of a text.
///
/// # Errors
///
/// If the text cannot be read, or not be changed.
pub fn remove(text: &str) -> Result<Injection, ManifestError> {
    let (clean, titles) = without(&Manifest::read(text)?)?;
    let report = |title| InjectReport { title, verdict: InjectVerdict::Removed, lines: Vec::new() };
    Ok(Injection { text: clean.text().to_owned(), reports: titles.into_iter().map(report).collect() })
}

/// A text without what earlier injections did, and the objects of which something was taken.
fn without(manifest: &Manifest) -> Result<(Manifest, Vec<String>), ManifestError> {
    let (mut edits, mut titles): (Vec<(usize, Edit)>, Vec<String>) = Default::default();
    for object in objects(manifest.values()) {
        let own = object.value.get("metadata").and_then(|metadata| metadata.get("annotations"));
        let records = [object.pod().and_then(|pod| pod.annotations(&object)), own];
        if let Some(record) = records.into_iter().find_map(Record::of) {
            edits.extend(record.undo(&object).into_iter().map(|edit| (object.document, edit)));
            titles.push(object.title());
        }
    }
    Ok((manifest.edited(&edits)?, titles))
}

/// Whether it has a model server that is known by name; what KServe describes always is one.
fn has_model(object: &Object) -> bool {
    object.is_inference_service() || object.pod().is_some_and(|pod| has_known(&pod))
}

fn is_named(object: &Object, options: &InjectOptions) -> bool {
    options.workloads.iter().any(|name| match name.split_once('/') {
        Some((kind, name)) => object.name() == name && object.kind().eq_ignore_ascii_case(kind),
        None => object.name() == name,
    })
}

/// Whether an object describes containers somewhere.
fn makes_pods(value: &Value, depth: usize) -> bool {
    match value {
        Value::Object(map) if depth < 16 => {
            map.get("containers").is_some_and(Value::is_array) || map.values().any(|value| makes_pods(value, depth + 1))
        }
        Value::Array(items) if depth < 16 => items.iter().any(|value| makes_pods(value, depth + 1)),
        _ => false,
    }
}

/// Whether a value has all that another has; it may have more: other keys, and in lists whose items have names, other items.
fn covers(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| value.get(key).is_some_and(|value| covers(value, wanted)))
        }
        (Value::Array(value), Value::Array(wanted))
            if !wanted.is_empty() && wanted.iter().all(|wanted| wanted.get("name").is_some()) =>
        {
            // where it stands there, which is usual, or elsewhere
            let has = |(at, wanted): (usize, &Value)| {
                value
                    .get(at)
                    .into_iter()
                    .chain(value)
                    .any(|value| value.get("name") == wanted.get("name") && covers(value, wanted))
            };
            wanted.iter().enumerate().all(has)
        }
        (Value::Array(value), Value::Array(wanted)) => {
            value.len() == wanted.len() && value.iter().zip(wanted).all(|(value, wanted)| covers(value, wanted))
        }
        _ => value == wanted,
    }
}
