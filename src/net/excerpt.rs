//! Error texts that quote a peer are cut: a peer does not decide how long an answer or a log line is.

/// The most bytes of an error text that a peer sees.
pub const MAX_ERROR_TEXT: usize = 1024;

/// Returns `text`, cut to at most `most` bytes (at least 3) at a character's boundary. A cut text ends in `…`.
#[must_use]
pub fn excerpt(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_boundary() {
        assert_eq!(excerpt("short".into(), MAX_ERROR_TEXT), "short");
        for text in ["x".repeat(60_000), "é".repeat(30_000), format!("x{}", "🐦".repeat(20_000))] {
            let cut = excerpt(text.clone(), MAX_ERROR_TEXT);
            assert!(cut.len() <= MAX_ERROR_TEXT && cut.len() > MAX_ERROR_TEXT - 4, "{}", cut.len());
            assert!(text.starts_with(cut.trim_end_matches('…')));
        }
    }
}
