//! Protocols by configuration: a rule's locations of the model and the work, compiled to watched fields.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::super::body_error;
use super::super::config::{Amount, Custom, Side};
use super::super::facts::ExchangeFacts;
use super::super::json_pointer::paths_of_pointer;
use super::super::plan::{ReadPlan, WatchedFields};
use super::super::tag::{Tag, TagValue};
use super::super::wire::{JsonPaths, PathStep};
use lapwing_ledger::{Basis, Unit};

/// A compiled rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    method: Option<Method>,
    path: Box<str>,
    pub(crate) plan: ReadPlan,
    headers: Vec<(Side, HeaderName, Tag)>,
    lengths: Vec<(Side, Unit)>,
    fixed: Vec<(Unit, u64)>,
    model: Option<Box<str>>,
}

impl Rule {
    /// Compiles a rule of the configuration, which must have been checked.
    pub(crate) fn new(custom: &Custom) -> Self {
        let (method, path) = custom.route();
        let (mut request, mut response) = (Vec::new(), Vec::new());
        let mut watch = |from, pointer: &str, tag| {
            let places = if from == Side::Request { &mut request } else { &mut response };
            places.extend(paths_of_pointer(pointer).into_iter().flatten().map(|steps| (steps, tag)));
        };
        let mut rule = Self {
            method: method.and_then(|name| Method::from_bytes(name.as_bytes()).ok()),
            path: path.into(),
            plan: ReadPlan {
                primary: custom.primary(),
                primary_otherwise: None,
                row_each: false,
                names_model: custom.model.as_ref().is_some_and(|name| name.from == Side::Request && name.json.is_some()),
                request: WatchedFields::Nothing,
                response: WatchedFields::Nothing,
            },
            headers: Vec::new(),
            lengths: Vec::new(),
            fixed: Vec::new(),
            model: custom.model.as_ref().and_then(|name| name.fixed.as_deref()).map(Into::into),
        };
        let header = |name: &Option<String>| name.as_deref().and_then(|name| name.parse::<HeaderName>().ok());
        if let Some(name) = &custom.model {
            if let Some(pointer) = &name.json {
                watch(name.from, pointer, Tag::Model);
            }
            rule.headers.extend(header(&name.header).map(|header| (name.from, header, Tag::Model)));
        }
        for (_, unit, amount) in custom.amounts() {
            let tag = tag(unit, amount);
            if let Some(pointer) = &amount.json {
                watch(amount.from, pointer, tag);
            }
            rule.headers.extend(header(&amount.header).map(|header| (amount.from, header, tag)));
            rule.lengths.extend(amount.length.map(|side| (side, unit)));
            rule.fixed.extend(amount.fixed.map(|fixed| (unit, fixed)));
        }
        if !response.is_empty() {
            // what the rule says about a member wins
            let errors = body_error::MEMBERS.iter().map(|(path, tag)| (PathStep::parse(path), *tag));
            let errors: Vec<_> = errors.filter(|(steps, _)| response.iter().all(|(own, _)| own != steps)).collect();
            response.extend(errors);
        }
        let source = |places: Vec<_>| {
            if places.is_empty() { WatchedFields::Nothing } else { WatchedFields::json(JsonPaths::from_steps(places)) }
        };
        (rule.plan.request, rule.plan.response) = (source(request), source(response));
        rule
    }

    /// Whether the rule applies to this request.
    pub(crate) fn fits(&self, method: &Method, path: &str) -> bool {
        self.method.as_ref().is_none_or(|own| own == method) && matches_glob(self.path.as_bytes(), path.as_bytes())
    }

    /// Records what the request's head contains and what the rule itself fixes.
    pub(crate) fn request_head(&self, headers: &HeaderMap, facts: &mut ExchangeFacts) {
        for (unit, fixed) in &self.fixed {
            facts.set(*unit, *fixed, Basis::Counted);
        }
        if let Some(model) = &self.model {
            facts.name_model(model.as_bytes());
        }
        for (tag, name) in self.fields(Side::Request) {
            if let Some(value) = headers.get(name) {
                facts.note_field(tag, value_of(tag, value));
            }
        }
    }

    /// Records what the fields of the response's head or trailers contain; the later ones win. Returns how many fields it refused:
    /// those that come more than once, and amounts that are no counts.
    pub(crate) fn response_fields(&self, headers: &HeaderMap, facts: &mut ExchangeFacts) -> usize {
        let mut refused = 0;
        for (tag, name) in self.fields(Side::Response) {
            let mut values = headers.get_all(name).iter();
            let Some(value) = values.next() else { continue };
            let value = value_of(tag, value);
            if values.next().is_some() || (tag != Tag::Model && value.count().is_none()) {
                refused += 1;
            } else {
                facts.note_field(tag, value);
            }
        }
        refused
    }

    fn fields(&self, side: Side) -> impl Iterator<Item = (Tag, &HeaderName)> {
        self.headers.iter().filter(move |(own, ..)| *own == side).map(|(_, name, tag)| (*tag, name))
    }

    /// Records the amounts that are the bodies' lengths.
    pub(crate) fn lengths(&self, request_bytes: u64, response_bytes: u64, facts: &mut ExchangeFacts) {
        for (side, unit) in &self.lengths {
            let bytes = if *side == Side::Request { request_bytes } else { response_bytes };
            facts.set(*unit, bytes, Basis::Counted);
        }
    }
}

/// The value of a field: a text for a model, else a number. A text where a number is due is no count.
fn value_of(tag: Tag, value: &HeaderValue) -> TagValue<'_> {
    let text = TagValue::Text { head: value.as_bytes(), bytes: value.len() as u64 };
    if tag == Tag::Model {
        return text;
    }
    std::str::from_utf8(value.as_bytes()).ok().and_then(|text| text.trim().parse().ok()).map_or(text, TagValue::Number)
}

/// The JSON pointer to the text of the rule's input tokens, if it is in the request.
pub(crate) fn text_of(custom: &Custom) -> Option<&str> {
    custom.input_tokens.as_ref().filter(|amount| amount.from == Side::Request)?.json.as_deref()
}

const fn tag(unit: Unit, amount: &Amount) -> Tag {
    // what an answer states about itself counts as reported by the server
    let basis = if matches!(amount.from, Side::Response) { Basis::Reported } else { Basis::Counted };
    match unit {
        Unit::InputToken | Unit::OutputToken => Tag::Tokens(unit, basis),
        _ => Tag::Amount(unit, basis),
    }
}

/// Whether `path` matches `glob`, in which `*` matches any text, also none. Linear except for the last `*`, which is bounded by the
/// rule's length.
#[must_use]
pub fn matches_glob(glob: &[u8], path: &[u8]) -> bool {
    let (mut at_glob, mut at_path) = (0, 0);
    // where to continue if the text after the last star does not match
    let mut again: Option<(usize, usize)> = None;
    while at_path < path.len() {
        match (glob.get(at_glob), again) {
            (Some(b'*'), _) => {
                again = Some((at_glob + 1, at_path + 1));
                at_glob += 1;
            }
            (Some(own), _) if *own == path[at_path] => (at_glob, at_path) = (at_glob + 1, at_path + 1),
            (_, Some((glob, path))) => {
                again = Some((glob, path + 1));
                (at_glob, at_path) = (glob, path);
            }
            _ => return false,
        }
    }
    glob[at_glob..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, path, yes) in [
            ("/score", "/score", true),
            ("/score", "/scores", false),
            ("/score/*", "/score/a/b", true),
            ("/score/*", "/score", false),
            ("*/predict", "/a/predict/predict", true),
            ("/a*b*c", "/abbbbc", true),
            ("/a*b*c", "/abbbb", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_glob(glob.as_bytes(), path.as_bytes()), yes, "{glob} {path}");
        }
    }
}
