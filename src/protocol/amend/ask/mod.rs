//! What to insert into a request, and where. Positions are bytes from the start of the body.

use std::ops::Range;

use super::Options;
use super::object::{Found, Object, within};

/// What a changed request asks for that the client did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Token usage at the end of a stream.
    Usage,
    /// `meta_info` in each choice of a response that is not streamed.
    MetaInfo,
}

/// A change of a body: `by` stands in the place of `replaced`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is asked for.
    pub added: Added,
    replaced: Range<usize>,
    by: &'static str,
}

impl Edit {
    const fn insert(added: Added, at: usize, by: &'static str) -> Self {
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

/// How to change the body of a completion request, if the client did not ask for it itself. Bodies that are no JSON
/// object, name a member twice, or have another type in it than its own are left alone.
#[must_use]
pub fn ask(body: &[u8], options: Options) -> Option<Edit> {
    let text = std::str::from_utf8(body).ok()?;
    let request = Object::read(text)?;
    let is_streamed = match request.find("stream") {
        Found::No => false,
        Found::At(_) => match request.value("stream")? {
            "true" => true,
            "false" | "null" => false,
            _ => return None,
        },
        Found::Often => return None,
    };
    if request.is_empty() {
        None
    } else if is_streamed {
        options.include_usage.then(|| usage(text, &request)).flatten()
    } else {
        let edit = |at, by| Edit { added: Added::MetaInfo, replaced: at, by };
        options.return_meta_info.then(|| switch(&request, "return_meta_info", edit, r#""return_meta_info":true,"#)).flatten()
    }
}

fn usage(text: &str, request: &Object<'_>) -> Option<Edit> {
    let at = match request.find("stream_options") {
        Found::No => {
            let by = r#""stream_options":{"include_usage":true},"#;
            return Some(Edit::insert(Added::Usage, request.inside(), by));
        }
        Found::At(at) => request.span(at)?,
        Found::Often => return None,
    };
    let value = text.get(at.clone())?;
    if value == "null" {
        return Some(Edit { added: Added::Usage, replaced: at, by: r#"{"include_usage":true}"# });
    }
    let options = Object::read(value)?;
    if !matches!(options.find("continuous_usage_stats"), Found::No) {
        return None; // usage in every chunk (vLLM) depends on the option: what it would be without cannot be told
    }
    let start = within(text, value).start;
    let edit = |at: Range<usize>, by| Edit { added: Added::Usage, replaced: start + at.start..start + at.end, by };
    let by = if options.is_empty() { r#""include_usage":true"# } else { r#""include_usage":true,"# };
    switch(&options, "include_usage", edit, by)
}

/// Turns the switch of that name on where it is off; inserts `by` where there is none.
fn switch(object: &Object<'_>, name: &str, edit: impl Fn(Range<usize>, &'static str) -> Edit, by: &'static str) -> Option<Edit> {
    match object.find(name) {
        Found::No => Some(edit(object.inside()..object.inside(), by)),
        Found::At(at) => matches!(object.value(name)?, "false" | "null").then(|| Some(edit(object.span(at)?, "true"))).flatten(),
        Found::Often => None,
    }
}

#[cfg(test)]
mod tests;
