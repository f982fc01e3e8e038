//! JSON pointers (RFC 6901) of the configuration, as paths of the readers.

use super::wire::PathStep;

/// The most numbers that a pointer may have. Each may be an index or a key, so each doubles the number of paths.
const NUMBERS: usize = 6;

/// The paths that a JSON pointer (RFC 6901) may mean, in which `*` is any element: a number is an index in an array and a key in
/// an object. `None` if it does not begin with `/` or has more than six numbers; the empty pointer is the document.
pub(crate) fn paths_of_pointer(pointer: &str) -> Option<Vec<Vec<PathStep>>> {
    let mut paths = vec![Vec::new()];
    if pointer.is_empty() {
        return Some(paths);
    }
    for part in pointer.strip_prefix('/')?.split('/') {
        let step = match part {
            "*" => PathStep::Element,
            part => PathStep::Key(part.replace("~1", "/").replace("~0", "~")),
        };
        if let Some(index) = index(part) {
            if paths.len() >> NUMBERS > 0 {
                return None;
            }
            paths.extend_from_within(..);
            let half = paths.len() / 2;
            paths[half..].iter_mut().for_each(|path| path.push(PathStep::Index(index)));
            paths[..half].iter_mut().for_each(|path| path.push(step.clone()));
        } else {
            paths.iter_mut().for_each(|path| path.push(step.clone()));
        }
    }
    Some(paths)
}

/// Digits without a leading zero.
fn index(part: &str) -> Option<u64> {
    let is_canonical = part == "0" || part.starts_with(|c: char| matches!(c, '1'..='9'));
    part.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers() {
        let key = |key: &str| PathStep::Key(key.to_owned());
        assert_eq!(paths_of_pointer(""), Some(vec![vec![]]));
        assert_eq!(paths_of_pointer("rows"), None);
        assert_eq!(
            paths_of_pointer("/a~1b/0/*/m~0n"),
            Some(vec![
                vec![key("a/b"), key("0"), PathStep::Element, key("m~n")],
                vec![key("a/b"), PathStep::Index(0), PathStep::Element, key("m~n")],
            ])
        );
        for name in ["00", "01", "+1", "-1", "", "1e0", "18446744073709551616"] {
            assert_eq!(paths_of_pointer(&format!("/{name}")), Some(vec![vec![key(name)]]), "no index");
        }
        assert_eq!(paths_of_pointer("/0/1/2/3/4/5").map(|paths| paths.len()), Some(64));
        assert_eq!(paths_of_pointer("/0/1/2/3/4/5/x/6"), None);
    }
}
