//! Pages as files: laid out in lines, freed of what depends on the process, and compared.

use std::fs;
use std::path::Path;

/// The page in lines, with the fields replaced that depend on the process. Nothing else changes: keys keep their order and
/// numbers their digits.
pub(crate) fn stable(page: &str) -> String {
    if page.starts_with('{') {
        let page = if page.starts_with(r#"{"window":"all""#) { replaced(page, r#""covered_ns":"#) } else { page.to_owned() };
        return laid_out(&page);
    }
    let line = |line: &str| {
        let name = line.split([' ', '{']).next().unwrap_or_default();
        match name {
            "lapwing_build_info" => r#"lapwing_build_info{version="-"} 1.0"#.to_owned(),
            _ if name.ends_with("resident_memory_bytes") => format!("{name} -"),
            _ => line.to_owned(),
        }
    };
    folded(page.lines().map(line))
}

/// Prometheus text with the buckets of each histogram in one line: first what is counted up to each bound, then the bounds,
/// which are left out where they are those of the histogram before. Nothing is lost.
fn folded(lines: impl Iterator<Item = String>) -> String {
    let mut out = String::new();
    let (mut open, mut bounds, mut last_bounds) = (None, String::new(), String::new());
    for line in lines.chain([String::new()]) {
        let bucket = bucket(&line);
        let series = bucket.as_ref().map(|(series, ..)| *series);
        if open.is_some() && open != series.map(|(name, labels)| format!("{name}{{le{labels}")) {
            if bounds != last_bounds {
                out.push_str(" up to");
                out.push_str(&bounds);
                last_bounds.clone_from(&bounds);
            }
            (open, bounds) = (None, String::new());
            out.push('\n');
        }
        match bucket {
            Some(((name, labels), bound, count)) => {
                if open.is_none() {
                    let series = format!("{name}{{le{labels}");
                    out.push_str(&series);
                    open = Some(series);
                }
                bounds.push_str(&format!(" {bound}"));
                out.push_str(&format!(" {count}"));
            }
            None if line.is_empty() => {}
            None => out.push_str(&(line + "\n")),
        }
    }
    out
}

/// A bucket's line: the name and the other labels, the bound, the count, and in braces its exemplar: trace, value and time.
fn bucket(line: &str) -> Option<((&str, &str), &str, String)> {
    let (line, exemplar) = line.split_once(" # {trace_id=\"").map_or((line, None), |(line, exemplar)| (line, Some(exemplar)));
    let (name, rest) = line.split_once("{le=\"")?;
    let (bound, rest) = rest.split_once('"')?;
    let (labels, count) = rest.rsplit_once(' ')?;
    let exemplar = exemplar.map_or(String::new(), |exemplar| format!("{{{}}}", exemplar.replacen("\"}", "", 1)));
    Some(((name, labels), bound, format!("{count}{exemplar}")))
}

/// The page with `-` for the number behind `key`.
fn replaced(page: &str, key: &str) -> String {
    let (before, rest) = page.split_once(key).unwrap();
    format!(r#"{before}{key}"-"{}"#, rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// JSON with a line for each element of the outer three levels; what lies deeper stays in its line.
fn laid_out(json: &str) -> String {
    const LEVELS: usize = 3;
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    let new_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    };
    for c in json.chars() {
        if in_text {
            (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
            out.push(c);
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                depth += 1;
                if depth <= LEVELS {
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                if depth <= LEVELS {
                    new_line(&mut out, depth - 1);
                }
                depth -= 1;
                out.push(c);
            }
            ',' => {
                out.push(c);
                if depth <= LEVELS {
                    new_line(&mut out, depth);
                }
            }
            _ => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out + "\n"
}

/// What differs from the committed file; nothing where it is written anew.
pub(crate) fn compare(file: &str, got: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var("LAPWING_GOLDEN").is_ok_and(|value| value == "write") {
        fs::write(&path, got).unwrap();
        return None;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    if wanted == got {
        return None;
    }
    let (mut old, mut new, mut at) = (wanted.lines(), got.lines(), 0);
    loop {
        at += 1;
        match (old.next(), new.next()) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => {
                let (a, b) = (a.unwrap_or("(the end)"), b.unwrap_or("(the end)"));
                return Some(format!("{}:{at}: differs\n  committed: {a}\n  now:       {b}", path.display()));
            }
        }
    }
}
