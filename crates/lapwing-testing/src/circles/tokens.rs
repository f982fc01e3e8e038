//! Finds paths in tokens that are not parsed: the arguments and bodies of macros, and attributes.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tree::{Kind, Segments};

/// A path with its line.
pub(crate) struct Found {
    pub(crate) path: Segments,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// Arguments of attributes whose text is a path or a type.
const TEXTS: [&str; 12] = [
    "bound",
    "crate",
    "default",
    "deserialize_with",
    "from",
    "into",
    "remote",
    "schema_with",
    "serialize_with",
    "skip_serializing_if",
    "try_from",
    "with",
];

/// The paths in `tokens`. Names of fields, of methods and of a macro's own variables are none.
pub(crate) fn paths(tokens: TokenStream) -> Vec<Found> {
    let mut found = Vec::new();
    scan(tokens, &[], &mut found);
    found
}

/// The paths in an attribute's arguments, and in the texts among these that name code (`with = "…"`).
pub(crate) fn paths_of_attribute(tokens: TokenStream) -> Vec<Found> {
    let trees: Vec<_> = tokens.clone().into_iter().collect();
    let mut found = paths(tokens);
    for three in trees.windows(3) {
        let [TokenTree::Ident(key), TokenTree::Punct(equal), TokenTree::Literal(text)] = three else { continue };
        if equal.as_char() == '=' && TEXTS.iter().any(|name| key == name) {
            let code = text.to_string().trim_matches('"').parse::<TokenStream>().map_or_else(|_| Vec::new(), paths);
            let line = text.span().start().line;
            found.extend(code.into_iter().map(|path| Found { line, ..path }));
        }
    }
    found
}

fn scan(tokens: TokenStream, prefix: &[String], found: &mut Vec<Found>) {
    let trees: Vec<_> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        match tree {
            TokenTree::Group(group) => scan(group.stream(), prefix_of(group.delimiter(), prefix), found),
            TokenTree::Ident(first) => {
                let start = at;
                let mut path = prefix.to_vec();
                path.push(name(first));
                while let (true, Some(TokenTree::Ident(next))) = (is_colons(&trees, at + 1), trees.get(at + 3)) {
                    path.push(name(next));
                    at += 3;
                }
                if is_colons(&trees, at + 1)
                    && let Some(TokenTree::Group(group)) = trees.get(at + 3)
                    && group.delimiter() == Delimiter::Brace
                {
                    // `use a::{b, c}` in a macro's body
                    scan(group.stream(), &path, found);
                    at += 3;
                } else if let Some(kind) = kind(&trees, start, at, prefix) {
                    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                        path.pop();
                    }
                    found.push(Found { path, line: first.span().start().line, kind });
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Braces and brackets after a prefix stand for other things than parts of a `use`.
fn prefix_of(delimiter: Delimiter, prefix: &[String]) -> &[String] {
    match delimiter {
        Delimiter::None => prefix,
        _ => &[],
    }
}

/// What the path from `start` to `end` is used for; `None` if it is no path of an item. With a prefix it is part of a `use`.
fn kind(trees: &[TokenTree], start: usize, end: usize, prefix: &[String]) -> Option<Kind> {
    let is_single = start == end && prefix.is_empty();
    let before = |steps: usize| start.checked_sub(steps).and_then(|at| trees.get(at));
    let is_punct = |tree: Option<&TokenTree>, c: char| matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == c);
    let TokenTree::Ident(first) = &trees[start] else { return None };
    let is_metavariable = is_punct(before(1), '$') && first != "crate";
    let is_member = is_punct(before(1), '.') && !is_punct(before(2), '.');
    let is_lifetime = is_punct(before(1), '\'');
    let is_absolute = start >= 2 && is_colons(trees, start - 2);
    let is_alias = !prefix.is_empty() && matches!(before(1), Some(TokenTree::Ident(word)) if word == "as");
    let is_declared = matches!(before(1), Some(TokenTree::Ident(word)) if ["fn", "let", "mod", "mut"].iter().any(|w| word == w));
    if is_metavariable || is_member || is_lifetime || is_absolute || is_alias || is_declared {
        return None;
    }
    let is_field = match (trees.get(end + 1), trees.get(end + 2)) {
        (Some(TokenTree::Punct(p)), _) if p.as_char() == ':' => !is_colons(trees, end + 1),
        (Some(TokenTree::Punct(p)), next) if p.as_char() == '=' => !is_punct(next, '=') && !is_punct(next, '>'),
        _ => false,
    };
    match trees.get(end + 1) {
        Some(TokenTree::Punct(p)) if p.as_char() == '!' && matches!(trees.get(end + 2), Some(TokenTree::Group(_))) => {
            Some(Kind::Macro)
        }
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => Some(Kind::Called),
        _ if is_field && is_single => None,
        _ => Some(Kind::Named),
    }
}

fn is_colons(trees: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| matches!(trees.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}

/// An identifier's name, without `r#`.
pub(crate) fn name(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}
