//! Counts the records of a CSV table (RFC 4180), piece by piece. A line feed between quotes ends no record, and a blank line is none.

use memchr::memchr2;

/// A reader of one table.
#[derive(Clone, Debug, Default)]
pub struct CsvReader {
    is_quoted: bool,
    /// Whether the line has anything but white space.
    has_content: bool,
    records: u64,
    /// Whether the first record has a letter that no number has.
    has_words_first: bool,
}

impl CsvReader {
    /// Reads the next piece.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr2(b'"', b'\n', rest).unwrap_or(rest.len());
            self.content(&rest[..end]);
            match rest.get(end) {
                Some(b'"') => (self.is_quoted, self.has_content) = (!self.is_quoted, true),
                Some(_) if !self.is_quoted => self.end(),
                _ => {}
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    /// Ends the last record, which may have no line feed.
    pub fn end(&mut self) {
        self.records += u64::from(std::mem::take(&mut self.has_content));
    }

    /// How many records there were, and whether the first one looks like names: numbers only are no header.
    #[must_use]
    pub fn records(&self) -> (u64, bool) {
        (self.records, self.has_words_first)
    }

    fn content(&mut self, bytes: &[u8]) {
        self.has_content |= bytes.iter().any(|byte| !byte.is_ascii_whitespace());
        if self.records == 0 && !self.has_words_first {
            self.has_words_first = bytes.iter().any(|byte| byte.is_ascii_alphabetic() && byte | 0x20 != b'e' || !byte.is_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(body: &[u8], length: usize) -> (u64, bool) {
        let mut reader = CsvReader::default();
        body.chunks(length).for_each(|piece| reader.feed(piece));
        reader.end();
        reader.records()
    }

    #[test]
    fn records_are_counted() {
        for (body, expected) in [
            ("", (0, false)),
            ("a,b\n1,2\n3,4\n", (3, true)),
            ("a,b\r\n1,2\r\n\r\n3,4", (3, true)),
            ("1.5e3,-2\n3,4\n", (2, false)),
            ("\"a\nb\",\"say \"\"x\"\"\n\"\n1,2\n", (2, true)),
            ("\n \r\n\n", (0, false)),
            ("größe\n1", (2, true)),
            ("1,2\na,b", (2, false)),
        ] {
            for length in [1, 2, usize::MAX] {
                assert_eq!(records(body.as_bytes(), length), expected, "{body:?} by {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_counted_alike_in_pieces(body in "(\"|\n|,|\r|a|1| ){0,60}", length in 1..9_usize) {
            prop_assert_eq!(records(body.as_bytes(), length), records(body.as_bytes(), usize::MAX));
        }
    }
}
