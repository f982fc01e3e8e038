//! Finds where a JSON string ends that is not kept, without stopping at its escapes.

use memchr::memchr;

use super::vectors::WINDOW;

/// Finds the quote that ends a string that is not kept: the first with an even number of backslashes before it. This is much
/// faster than stopping at every escape, of which a text that is not ASCII may be full. Returns the position after it. If it does
/// not come, `is_escaped` says whether the first of the next bytes is escaped.
///
/// Linear: backslashes are counted back to the previous quote at most, and a window is tested once for each escaped quote in it at most.
#[inline(always)] // for `vectorised`
pub(crate) fn closing_quote(bytes: &[u8], is_escaped: &mut bool) -> Option<usize> {
    if bytes.is_empty() {
        return None;
    }
    // an escaped byte is neither a closing quote nor a backslash that escapes
    let mut from = usize::from(std::mem::take(is_escaped));
    // where the search goes on: each quote between `from` and here is escaped
    let mut at = from;
    loop {
        let found = memchr(b'"', &bytes[at..]).map(|n| at + n);
        let before = &bytes[from..found.unwrap_or(bytes.len())];
        let is_odd = before.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1;
        match found {
            Some(quote) if is_odd => {
                from = quote + 1;
                at = past_escaped(bytes, from);
            }
            Some(quote) => return Some(quote + 1),
            None => {
                *is_escaped = is_odd;
                return None;
            }
        }
    }
}

/// Where one escaped quote is, there are often more, and a search for each by itself takes longer than what it skips. From `at`,
/// which is after an escaped quote, passes windows whose only quotes follow a single backslash, up to the first without any.
/// Written so that the compiler generates vector instructions.
#[inline(always)]
fn past_escaped(bytes: &[u8], mut at: usize) -> usize {
    // the two bytes before show whether the window's first byte is escaped
    while let Some(window) = bytes.get(at - 2..).and_then(<[u8]>::first_chunk::<{ WINDOW + 2 }>) {
        let (mut quotes, mut others) = (0, 0);
        for i in 0..WINDOW {
            let is_quote = u8::from(window[i + 2] == b'"');
            let is_escaped = u8::from(window[i + 1] == b'\\') & u8::from(window[i] != b'\\');
            quotes |= is_quote;
            others |= is_quote & (is_escaped ^ 1);
        }
        if others != 0 {
            break;
        }
        at += WINDOW;
        if quotes == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::json::vectors::vectorised;

    /// What `closing_quote` does, one byte after the other.
    fn byte_by_byte(bytes: &[u8], is_escaped: &mut bool) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                _ if *is_escaped => *is_escaped = false,
                b'\\' => *is_escaped = true,
                b'"' => return Some(at + 1),
                _ => {}
            }
        }
        None
    }

    /// Pieces of strings: mostly escaped quotes, near and far from each other, and runs of backslashes.
    fn string() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            10 => Just("\\\"".to_owned()),
            4 => "[a-z]{0,90}",
            2 => r"\\{1,5}",
            1 => Just("\"".to_owned()),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_quote_is_the_one_that_bytes_show(string in string(), begins_escaped: bool) {
            let (mut expected, mut is_escaped) = (begins_escaped, begins_escaped);
            let end = byte_by_byte(string.as_bytes(), &mut expected);
            let found = vectorised(
                string.len(),
                #[inline(always)]
                || closing_quote(string.as_bytes(), &mut is_escaped),
            );
            prop_assert_eq!(found, end);
            if end.is_none() {
                prop_assert_eq!(is_escaped, expected);
            }
        }
    }
}
