//! Prometheus text as servers write it, one sample per line. Parsing is strict, and only requested samples are parsed:
//! comments, time stamps and exemplars are skipped, and an invalid line is counted instead of failing the poll.

use std::borrow::Cow;

/// One sample: `name{label="value",…} number`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The name with its suffix, if it has one.
    pub(crate) name: &'a str,
    /// The text between the braces, known to be well-formed.
    labels: &'a str,
    /// The number; may be infinite or NaN.
    pub(crate) value: f64,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MetricLine<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// The family that a `# TYPE` or `# HELP` line names; it may have no samples yet.
    Family(&'a str),
    /// An empty line or a comment.
    Nothing,
    /// Not Prometheus text.
    Malformed,
}

impl<'a> MetricLine<'a> {
    /// Reads one line without its line ending.
    pub(crate) fn of(line: &'a str) -> Self {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Self::Nothing;
        }
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.split_ascii_whitespace();
            return match (words.next(), words.next()) {
                (Some("TYPE" | "HELP"), Some(family)) => Self::Family(family),
                _ => Self::Nothing,
            };
        }
        Sample::of(line).map_or(Self::Malformed, Self::Sample)
    }
}

impl<'a> Sample<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_at(name_length(line));
        let (labels, rest) = match rest.trim_ascii_start().strip_prefix('{') {
            Some(rest) => {
                let end = labels_length(rest)?;
                (&rest[..end], &rest[end + 1..])
            }
            None if rest.starts_with([' ', '\t']) => ("", rest),
            None => return None,
        };
        let mut words = rest.split_ascii_whitespace();
        let value = words.next()?.parse().ok()?; // Rust reads NaN, +Inf and -Inf as they are written
        let sound = match words.next() {
            None => true,
            Some(stamp) => stamp.starts_with('#') || stamp.parse::<f64>().is_ok(),
        };
        (!name.is_empty() && sound).then_some(Self { name, labels, value })
    }

    /// The value of `label`, unescaped.
    pub(crate) fn label(&self, label: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        while let Some((name, value, after)) = next_label(rest) {
            if name == label {
                return Some(unescaped(value));
            }
            rest = after;
        }
        None
    }
}

/// The length of the metric's or label's name at the start of `text`.
fn name_length(text: &str) -> usize {
    let of_name =
        |(at, byte): (usize, u8)| byte.is_ascii_alphabetic() || b"_:".contains(&byte) || (at > 0 && byte.is_ascii_digit());
    text.bytes().enumerate().position(|c| !of_name(c)).unwrap_or(text.len())
}

/// The distance to the closing brace; `None` if the text before it is not a list of labels.
fn labels_length(text: &str) -> Option<usize> {
    let mut rest = text;
    while let Some((_, _, after)) = next_label(rest) {
        rest = after;
    }
    let rest = rest.trim_ascii_start();
    rest.starts_with('}').then(|| text.len() - rest.len())
}

/// The next `name="value"`, still escaped, and the text after its comma.
fn next_label(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_ascii_start();
    let (name, rest) = text.split_at(name_length(text));
    let rest = rest.trim_ascii_start().strip_prefix('=')?.trim_ascii_start().strip_prefix('"')?;
    let mut is_escaped = false;
    let end = rest.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    let after = rest[end + 1..].trim_ascii_start();
    let after = match after.strip_prefix(',') {
        Some(after) => after,
        None if after.is_empty() || after.starts_with('}') => after,
        None => return None,
    };
    (!name.is_empty()).then_some((name, &rest[..end], after))
}

fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some(next @ ('\\' | '"' | 'n'))) => {
                text.push(if next == 'n' { '\n' } else { next });
                chars.next();
            }
            _ => text.push(c), // an unknown escape means itself
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests;
