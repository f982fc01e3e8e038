//! The words of a container's command, as far as its manifest shows them, and the options among these.

use serde_json::Value;

use super::object::items;

/// The command line of a container: what it runs, with its arguments. What a shell is given is split as the shell would.
pub(crate) struct Words {
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Words {
    pub(crate) fn of(container: &Value) -> Self {
        let environment: Vec<(String, String)> = items(container, "env")
            .filter_map(|variable| Some((variable.get("name")?.as_str()?.to_owned(), scalar(variable.get("value")?)?)))
            .collect();
        let mut words = Vec::new();
        for word in items(container, "command").chain(items(container, "args")).filter_map(scalar) {
            // one word for a shell, several for whoever reads it
            if word.contains(char::is_whitespace) {
                words.extend(split(&word));
            } else {
                words.push(word);
            }
        }
        let words = words.iter().map(|word| expanded(word, &environment)).collect();
        Self { words, environment }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether it runs a command: a word or a path that ends in it; several words in their order; with a dot at its end, a module below
    /// that one (`python -m vllm.entrypoints.openai.api_server`).
    pub(crate) fn runs(&self, command: &str) -> bool {
        let wanted: Vec<&str> = command.split(' ').collect();
        self.words.windows(wanted.len()).any(|words| {
            words.iter().zip(&wanted).all(|(word, wanted)| {
                let name = word.rsplit('/').next().unwrap_or_default();
                name == *wanted || (wanted.ends_with('.') && name.starts_with(*wanted))
            })
        })
    }

    /// Whether one of the words is this, or where it is an option with `=`, sets this option otherwise or with its value apart.
    pub(crate) fn has(&self, argument: &str) -> bool {
        let (name, value) = argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
        // an option that may come several times is another one with another value
        let is_repeated = value.is_some_and(|value| value.contains('='));
        let is_it = |(at, word): (usize, &String)| match value {
            _ if word == argument => true,
            Some(value) if is_repeated => word == name && self.words.get(at + 1).is_some_and(|next| next == value),
            Some(_) => word == name || word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')),
            None => false,
        };
        self.words.iter().enumerate().any(is_it)
    }

    /// The value of the last of the options that are named so: `--port 8000`, `--port=8000`.
    pub(crate) fn option(&self, names: &[&str]) -> Option<&str> {
        self.words.iter().enumerate().rev().find_map(|(at, word)| {
            let name = names.iter().find(|name| word.starts_with(**name))?;
            let rest = &word[name.len()..];
            if rest.is_empty() {
                return self.words.get(at + 1).map(String::as_str);
            }
            let is_short = name.len() == 2 && rest.starts_with(|first: char| first.is_ascii_digit());
            if is_short { Some(rest) } else { rest.strip_prefix('=') }
        })
    }
}

/// A text or number as text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        _ => None,
    }
}

/// The words of a script: quotes and comments as a shell has them, and where it is none, what stands between spaces.
fn split(script: &str) -> Vec<String> {
    let parted = script.replace("\\\n", " ").replace([';', '&', '|', '(', ')'], " ");
    shlex::split(&parted)
        .unwrap_or_else(|| parted.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned()).collect())
}

/// A word with the container's own variables: `$(PORT)` is Kubernetes', `$PORT`, `${PORT}` and `${PORT:-8000}` a shell's.
fn expanded(word: &str, environment: &[(String, String)]) -> String {
    let mut made = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        made.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let close = match behind.chars().next() {
            Some('(') => behind.find(')'),
            Some('{') => behind.find('}'),
            _ => None,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, fallback, end) = if let Some(close) = close {
            let (name, fallback) = behind[1..close].split_once(":-").unwrap_or((&behind[1..close], ""));
            (name, fallback, close + 1)
        } else {
            let end = behind.find(|c| !is_name(c)).unwrap_or(behind.len());
            (&behind[..end], "", end)
        };
        let known = environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        match known {
            Some(value) => made.push_str(value),
            None if !fallback.is_empty() => made.push_str(fallback),
            None => made.push_str(&rest[at..at + 1 + end]),
        }
        rest = &behind[end..];
    }
    made.push_str(rest);
    made
}
