//! Changes of a text: what is added takes the style and the columns of what stands beside it.

use std::ops::Range;

use granit_parser::ScalarStyle;

use super::edit::{Change, Edit, Fragment, PRETTY};
use super::error::ManifestError;
use super::node::{Entry, Kind, Node, last_byte, plain};

/// The text with all changes. Their places are those of the text as it was.
pub(crate) fn spliced(text: &str, roots: &[&Node], edits: &[(usize, Edit)]) -> Result<String, ManifestError> {
    let text_of =
        Text { text, line_end: if text.contains("\r\n") { "\r\n" } else { "\n" }, is_json: text.trim_start().starts_with('{') };
    let mut pieces: Vec<(Range<usize>, String)> = Vec::new();
    for (at, edit) in edits {
        let root = roots.get(*at).ok_or_else(|| ManifestError::NoPath(edit.pointer()))?;
        pieces.push(text_of.piece(root, edit)?);
    }
    // of two at one place, the first comes first
    pieces.sort_by_key(|(range, _)| range.start);
    let mut made = String::with_capacity(text.len() + 4096);
    let mut from = 0;
    for (range, piece) in &pieces {
        if range.start < from {
            return Err(ManifestError::Layout("two changes of one place".to_owned()));
        }
        made.push_str(&text[from..range.start]);
        made.push_str(piece);
        from = range.end;
    }
    made.push_str(&text[from..]);
    // a last line without an end stays so
    if !text.ends_with('\n') && made.ends_with('\n') {
        made.truncate(made.trim_end_matches(['\r', '\n']).len());
    }
    Ok(made)
}

struct Text<'a> {
    text: &'a str,
    line_end: &'static str,
    /// Whether it begins as JSON, in which words have quotes.
    is_json: bool,
}

impl Text<'_> {
    fn piece(&self, root: &Node, edit: &Edit) -> Result<(Range<usize>, String), ManifestError> {
        let Some((last, parents)) = edit.path.split_last() else { return Err(ManifestError::NoPath(String::new())) };
        let layout = || ManifestError::Layout(edit.pointer());
        // the collection, and the key that it is the value of, if that is in block style
        let (mut at, mut key) = (root, None);
        for part in parents {
            (at, key) = child(at, part, edit)?;
        }
        match (&edit.change, &at.kind) {
            (_, Kind::Alias(_)) => Err(shared(edit)),
            (Change::Add(what), Kind::Sequence { items, is_flow }) if last == "-" => match (is_flow, items.last()) {
                (false, Some(tail)) => {
                    let column = self.dash(&items[0]).ok_or_else(layout)?;
                    Ok(self.behind(last_byte(self.text, tail), self.item(what, column)))
                }
                (true, Some(tail)) => Ok(self.in_flow(at, tail, what, None)),
                (_, None) => self.in_empty(at, key, what, None).ok_or_else(layout),
            },
            (Change::Add(what), Kind::Mapping { entries, is_flow }) => match (is_flow, entries.last()) {
                (false, Some(tail)) => {
                    let column = self.column(entries[0].key.range.start);
                    Ok(self.behind(self.end_of(tail), self.entry(last, what, column)))
                }
                (true, Some(tail)) => Ok(self.in_flow(at, &tail.value, what, Some(last))),
                (_, None) => self.in_empty(at, key, what, Some(last)).ok_or_else(layout),
            },
            (Change::Add(what), Kind::Scalar { .. }) if at.is_null() => {
                self.in_empty(at, key, what, Some(last.as_str()).filter(|last| *last != "-")).ok_or_else(layout)
            }
            (Change::Replace(what), _) => {
                let (node, key) = child(at, last, edit)?;
                self.replaced(node, key, what).ok_or_else(layout)
            }
            (Change::Remove, Kind::Sequence { items, is_flow }) => {
                let number = last.parse::<usize>().ok().filter(|number| *number < items.len()).ok_or_else(layout)?;
                if *is_flow {
                    return Ok((self.out_of_flow(number, items.len(), |at| items[at].range.clone()), String::new()));
                }
                let from = self.dash_at(&items[number]).ok_or_else(layout)?;
                Ok((self.lines(from..last_byte(self.text, &items[number])), String::new()))
            }
            (Change::Remove, Kind::Mapping { entries, is_flow }) => {
                let number = entries.iter().position(|entry| is_named(entry, last)).ok_or_else(|| shared(edit))?;
                if *is_flow {
                    let range = |at: usize| entries[at].key.range.start..entries[at].value.range.end;
                    return Ok((self.out_of_flow(number, entries.len(), range), String::new()));
                }
                let entry = &entries[number];
                // the first key of an item stands behind its dash
                self.is_first(entry.key.range.start)
                    .then(|| (self.lines(entry.key.range.start..self.end_of(entry)), String::new()))
                    .ok_or_else(layout)
            }
            _ => Err(ManifestError::NoPath(edit.pointer())),
        }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    /// Behind what stands on the line of a place, without its end.
    fn line_stop(&self, at: usize) -> usize {
        let stop = self.text[at..].find('\n').map_or(self.text.len(), |end| at + end);
        if self.text[at..stop].ends_with('\r') { stop - 1 } else { stop }
    }

    fn column(&self, at: usize) -> usize {
        self.text[self.line_start(at)..at].chars().count()
    }

    fn is_first(&self, at: usize) -> bool {
        self.text[self.line_start(at)..at].trim().is_empty()
    }

    /// Whole lines, with the end of the last.
    fn lines(&self, range: Range<usize>) -> Range<usize> {
        let stop = self.text[range.end..].find('\n').map_or(self.text.len(), |end| range.end + end + 1);
        // what ends in an end of line has nothing behind it there
        let stop = if self.text[..range.end].ends_with('\n') { range.end } else { stop };
        self.line_start(range.start)..stop
    }

    /// Where the dash of an item of a block sequence is.
    fn dash_at(&self, item: &Node) -> Option<usize> {
        let mut stop = item.range.start;
        loop {
            let start = self.line_start(stop);
            let before = &self.text[start..stop];
            if let Some(dash) = before.rfind('-').filter(|dash| before[..*dash].trim_matches([' ', '-']).is_empty()) {
                let follows = before[dash + 1..].chars().next();
                if follows.is_none_or(char::is_whitespace) {
                    return Some(start + dash);
                }
            }
            // an anchor, a tag or a comment may stand between them
            stop = start.checked_sub(1)?;
        }
    }

    fn dash(&self, item: &Node) -> Option<usize> {
        self.dash_at(item).map(|at| self.column(at))
    }

    fn end_of(&self, entry: &Entry) -> usize {
        if entry.value.range.is_empty() { self.line_stop(entry.key.range.end) } else { last_byte(self.text, &entry.value) }
    }

    /// Lines behind the line of a place.
    fn behind(&self, at: usize, lines: String) -> (Range<usize>, String) {
        if self.text[..at].ends_with('\n') {
            return (at..at, format!("{lines}{}", self.line_end));
        }
        let stop = self.line_stop(at);
        (stop..stop, format!("{}{lines}", self.line_end))
    }

    fn item(&self, what: &Fragment, column: usize) -> String {
        self.indented(what.item.lines(), column)
    }

    fn entry(&self, key: &str, what: &Fragment, column: usize) -> String {
        let key = key_text(key);
        if what.is_collection() {
            return format!("{:column$}{key}:{}{}", "", self.line_end, self.collection(what, column));
        }
        format!("{:column$}{key}: {}", "", what.lines().collect::<Vec<_>>().join(self.line_end))
    }

    /// The lines of a collection that is the value of a key at a column.
    fn collection(&self, what: &Fragment, column: usize) -> String {
        let column = if what.value.is_object() { column + 2 } else { column };
        self.indented(what.lines(), column)
    }

    fn indented<'l>(&self, lines: impl Iterator<Item = &'l str>, column: usize) -> String {
        let lines: Vec<String> =
            lines.map(|line| if line.is_empty() { String::new() } else { format!("{:column$}{line}", "") }).collect();
        lines.join(self.line_end)
    }

    /// Into a collection in flow style that has something in it, behind that.
    fn in_flow(&self, collection: &Node, tail: &Node, what: &Fragment, key: Option<&str>) -> (Range<usize>, String) {
        let at = tail.range.end;
        let close = collection.range.end.saturating_sub(1).max(at);
        let has_comma = self.text[at..close].contains(',');
        let at = if has_comma { at + self.text[at..close].find(',').map_or(0, |comma| comma + 1) } else { at };
        let comma = if has_comma { "" } else { "," };
        let name = key.map_or_else(String::new, |key| format!("{}: ", serde_json::Value::from(key)));
        let first = self.text[collection.range.start..tail.range.start].find('\n');
        let Some(first) = first else { return (at..at, format!("{comma} {name}{}", what.json)) };
        // one line for each: as the first stands
        let start = collection.range.start + first + 1;
        let margin = self.text[start..].len() - self.text[start..].trim_start_matches([' ', '\t']).len();
        let indent = &self.text[start..start + margin];
        let outer = self.line_start(collection.range.start);
        let outer = self.text[outer..].len() - self.text[outer..].trim_start_matches([' ', '\t']).len();
        let step = " ".repeat(margin.saturating_sub(outer).clamp(1, 8));
        let lines = stepped(&what.pretty, &step).join(&format!("{}{indent}", self.line_end));
        (at..at, format!("{comma}{}{indent}{name}{lines}", self.line_end))
    }

    /// Into a collection without anything in it: in block style if it is the value of a key in block style.
    fn in_empty(
        &self,
        collection: &Node,
        key: Option<&Entry>,
        what: &Fragment,
        name: Option<&str>,
    ) -> Option<(Range<usize>, String)> {
        let range = collection.range.clone();
        if let Some(entry) = key {
            let column = self.column(entry.key.range.start);
            let lines = match name {
                Some(name) => self.entry(name, what, column + 2),
                None => self.item(what, column),
            };
            return self.below_key(collection, entry, &lines);
        }
        let (open, close) = if name.is_some() { ('{', '}') } else { ('[', ']') };
        let name = name.map_or_else(String::new, |name| format!("{}: ", serde_json::Value::from(name)));
        Some((range, format!("{open}{name}{}{close}", what.json)))
    }

    /// Lines below a key, whose value has nothing in it. A comment stays on the line of the key.
    fn below_key(&self, value: &Node, entry: &Entry, lines: &str) -> Option<(Range<usize>, String)> {
        let colon = entry.key.range.end + self.text[entry.key.range.end..].find(':')? + 1;
        let from = value.range.end.max(colon);
        let stop = self.line_stop(from);
        let comment = self.text[from..stop].trim_end();
        Some((colon..stop, format!("{comment}{}{lines}", self.line_end)))
    }

    /// A node by another value: on one line, but in block style a collection where there was an empty one.
    fn replaced(&self, node: &Node, key: Option<&Entry>, what: &Fragment) -> Option<(Range<usize>, String)> {
        if let Some(entry) = key.filter(|_| (node.is_null() || node.is_empty()) && what.is_collection()) {
            return self.below_key(node, entry, &self.collection(what, self.column(entry.key.range.start)));
        }
        let is_one_line = matches!(node.kind, Kind::Scalar { .. }) || is_flow(node);
        if is_one_line && !node.range.is_empty() {
            let is_plain = matches!(node.kind, Kind::Scalar { style: ScalarStyle::Plain, .. }) && !self.is_json;
            let word = what.value.as_str().filter(|word| is_plain && key_text(word) == *word);
            return Some((node.range.clone(), word.map_or_else(|| what.json.clone(), str::to_owned)));
        }
        let end_of_key = key?.key.range.end;
        let colon = end_of_key + self.text[end_of_key..].find(':')? + 1;
        Some((colon..last_byte(self.text, node).max(colon), format!(" {}", what.json)))
    }

    /// An item or entry of a collection in flow style, with one of the commas beside it.
    fn out_of_flow(&self, number: usize, count: usize, range: impl Fn(usize) -> Range<usize>) -> Range<usize> {
        let own = range(number);
        if number > 0 {
            range(number - 1).end..own.end
        } else if count > 1 {
            own.start..range(1).start
        } else {
            own
        }
    }
}

fn is_named(entry: &Entry, name: &str) -> bool {
    matches!(&entry.key.kind, Kind::Scalar { value, .. } if value == name)
}

fn is_flow(node: &Node) -> bool {
    matches!(node.kind, Kind::Sequence { is_flow: true, .. } | Kind::Mapping { is_flow: true, .. })
}

/// A part of a path below a node, and its entry if it is the value of a key in block style.
fn child<'a>(node: &'a Node, part: &str, edit: &Edit) -> Result<(&'a Node, Option<&'a Entry>), ManifestError> {
    match &node.kind {
        Kind::Alias(_) => Err(shared(edit)),
        Kind::Mapping { entries, is_flow } => match node.entry(part) {
            Some(entry) => Ok((&entry.value, (!is_flow).then_some(entry))),
            None if entries.iter().any(|entry| is_named(entry, "<<")) => Err(shared(edit)),
            None => Err(ManifestError::NoPath(edit.pointer())),
        },
        Kind::Sequence { items, .. } => {
            let item = part.parse::<usize>().ok().and_then(|at| items.get(at));
            item.map(|item| (item, None)).ok_or_else(|| ManifestError::NoPath(edit.pointer()))
        }
        Kind::Scalar { .. } => Err(ManifestError::NoPath(edit.pointer())),
    }
}

fn shared(edit: &Edit) -> ManifestError {
    ManifestError::Shared(edit.pointer())
}

/// A key as YAML writes it: those of Kubernetes need no quotes.
fn key_text(key: &str) -> String {
    let is_plain = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_'));
    let is_word = key.starts_with(|first: char| first.is_ascii_alphabetic()) && plain(key).is_string();
    if is_plain && is_word { key.to_owned() } else { serde_json::Value::from(key).to_string() }
}

/// JSON on several lines, of which each level is indented by `step`.
fn stepped(pretty: &str, step: &str) -> Vec<String> {
    let line = |line: &str| {
        let text = line.trim_start_matches(' ');
        format!("{}{text}", step.repeat((line.len() - text.len()) / PRETTY.len()))
    };
    pretty.lines().map(line).collect()
}
