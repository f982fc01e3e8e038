//! What to insert into a request, and where. Positions are bytes from the start of the body.

use std::ops::Range;

use super::AmendOptions;
use super::object::{MemberLookup, Object, within};

/// The option that a changed request has and the client's did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedOption {
    /// Token usage at the end of a stream.
    Usage,
    /// `meta_info` in each choice of a response that is not streamed.
    MetaInfo,
}

/// A change of a body: `by` replaces `replaced`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEdit {
    /// The option that the change adds.
    pub added: AddedOption,
    replaced: Range<usize>,
    by: &'static str,
}

impl RequestEdit {
    const fn insert(added: AddedOption, at: usize, by: &'static str) -> Self {
        Self { added, replaced: at..at, by }
    }

    /// The changed body.
    #[must_use]
    pub fn apply(&self, body: &[u8]) -> Vec<u8> {
        let (before, rest) = body.split_at(self.replaced.start.min(body.len()));
        let after = rest.get(self.replaced.len()..).unwrap_or_default();
        [before, self.by.as_bytes(), after].concat()
    }
}

/// The change of a completion request's body, if the client did not set the option itself. Bodies that are not a JSON object,
/// name a member twice, or have a member of another type than usual are left unchanged.
#[must_use]
pub fn amend_request(body: &[u8], options: AmendOptions) -> Option<RequestEdit> {
    let text = std::str::from_utf8(body).ok()?;
    let request = Object::read(text)?;
    let is_streamed = match request.find("stream") {
        MemberLookup::No => false,
        MemberLookup::At(_) => match request.value("stream")? {
            "true" => true,
            "false" | "null" => false,
            _ => return None,
        },
        MemberLookup::Often => return None,
    };
    if request.is_empty() {
        None
    } else if is_streamed {
        options.include_usage.then(|| usage(text, &request)).flatten()
    } else {
        let edit = |at, by| RequestEdit { added: AddedOption::MetaInfo, replaced: at, by };
        options.return_meta_info.then(|| switch(&request, "return_meta_info", edit, r#""return_meta_info":true,"#)).flatten()
    }
}

fn usage(text: &str, request: &Object<'_>) -> Option<RequestEdit> {
    let at = match request.find("stream_options") {
        MemberLookup::No => {
            let by = r#""stream_options":{"include_usage":true},"#;
            return Some(RequestEdit::insert(AddedOption::Usage, request.inside(), by));
        }
        MemberLookup::At(at) => request.span(at)?,
        MemberLookup::Often => return None,
    };
    let value = text.get(at.clone())?;
    if value == "null" {
        return Some(RequestEdit { added: AddedOption::Usage, replaced: at, by: r#"{"include_usage":true}"# });
    }
    let options = Object::read(value)?;
    if !matches!(options.find("continuous_usage_stats"), MemberLookup::No) {
        return None; // usage in every chunk (vLLM) depends on the option, so its effect cannot be removed
    }
    let start = within(text, value).start;
    let edit = |at: Range<usize>, by| RequestEdit { added: AddedOption::Usage, replaced: start + at.start..start + at.end, by };
    let by = if options.is_empty() { r#""include_usage":true"# } else { r#""include_usage":true,"# };
    switch(&options, "include_usage", edit, by)
}

/// Turns the switch of that name on if it is off; inserts `by` if there is none.
fn switch(
    object: &Object<'_>,
    name: &str,
    edit: impl Fn(Range<usize>, &'static str) -> RequestEdit,
    by: &'static str,
) -> Option<RequestEdit> {
    match object.find(name) {
        MemberLookup::No => Some(edit(object.inside()..object.inside(), by)),
        MemberLookup::At(at) => {
            matches!(object.value(name)?, "false" | "null").then(|| Some(edit(object.span(at)?, "true"))).flatten()
        }
        MemberLookup::Often => None,
    }
}

#[cfg(test)]
mod tests;
