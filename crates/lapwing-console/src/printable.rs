//! Names that a stranger chose, for a terminal: no character of theirs moves the cursor, and none takes more than its room.
//!
//! Widths are columns of a terminal by Unicode's East Asian Width (UAX #11).

use unicode_width::UnicodeWidthChar;

/// `text` in at most `columns` columns (at least 1): what is not printed as itself is escaped as Rust does (`\u{1b}`, `\n`), and what
/// does not fit is cut and ends in `…`.
pub fn printable(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let (mut used, mut fits) = (0, 0);
    for char in text.chars() {
        let piece = escaped(char);
        let wide: usize = piece.chars().map(|char| char.width().unwrap_or(0)).sum();
        if used + wide > columns {
            // only what leaves a column for the ellipsis stays
            out.truncate(fits);
            out.push('…');
            return out;
        }
        out.push_str(&piece);
        used += wide;
        if used < columns {
            fits = out.len();
        }
    }
    out
}

/// A character as it is shown. Escapes are what `char::escape_debug` makes of control characters, formats such as the marks that turn
/// the direction of writing, unassigned and private characters, and marks that join the character before; quotes stay.
fn escaped(char: char) -> String {
    if matches!(char, '\'' | '"') {
        return char.to_string();
    }
    let shown = char.escape_debug().to_string();
    // printable by Unicode, but without a column
    let is_bare = shown.len() == char.len_utf8() && char.width().unwrap_or(0) == 0;
    if is_bare { char.escape_unicode().to_string() } else { shown }
}

/// The columns that `text` takes, which [`printable`] made.
#[cfg(any(feature = "top", test))]
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|char| char.width().unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_escaped() {
        for (name, shown) in [
            ("POST /v2/models/{model}/infer", "POST /v2/models/{model}/infer"),
            ("tickets'\"", "tickets'\""),
            ("鸟 🐦 é", "鸟 🐦 é"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("a\nb\tc\rd\\", "a\\nb\\tc\\rd\\\\"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("abc\u{202e}fed", "abc\\u{202e}fed"),
            ("e\u{301}\u{200b}\u{200d}", "e\\u{301}\\u{200b}\\u{200d}"),
            ("", ""),
        ] {
            assert_eq!(printable(name, 200), shown, "{name:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_by_columns() {
        assert_eq!(printable("abcdef", 6), "abcdef");
        assert_eq!(printable("abcdefg", 6), "abcde…");
        assert_eq!(printable("鸟鸟鸟", 6), "鸟鸟鸟");
        assert_eq!(printable("鸟鸟鸟鸟", 6), "鸟鸟…");
        // an escape is shown whole or not at all
        assert_eq!(printable("ab\x1b", 6), "ab…");
        assert_eq!(printable("abc", 1), "…");
        for columns in 1..40 {
            for name in ["x".repeat(1 << 16), "鸟".repeat(99), "\x1b".repeat(99), "a\u{301}".repeat(99)] {
                assert!(width(&printable(&name, columns)) <= columns, "{columns}");
            }
        }
    }

    #[test]
    fn no_character_reaches_the_terminal_that_would_move_its_cursor() {
        for char in (0..=0x10_ffff).filter_map(char::from_u32) {
            let shown = printable(&char.to_string(), 20);
            assert!(shown.chars().all(|c| !c.is_control() && c.width().unwrap_or(0) > 0), "{char:?}: {shown:?}");
        }
    }
}
