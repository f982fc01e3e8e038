//! The demo's tokenizer: WordPiece over the tickets' vocabulary, as BERT's is, by the `tokenizers` crate.
//!
//! Long words are split into two pieces and numbers into digits, so that texts and tokens differ in length.

use serde_json::json;

use super::corpus;

/// The id that pads rows to the longest; the mask excludes it.
const PADDING: i64 = 0;
const UNKNOWN: &str = "[UNK]";
/// Words with more letters are split after this many.
const PREFIX: usize = 6;
/// The most tokens of a row; longer texts are cut.
pub(crate) const MAX_TOKENS: usize = 64;

/// Token ids of several texts, each row filled up to the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Row by row, `rows × length` ids.
    pub(crate) ids: Vec<i64>,
    /// The mask, of the same size: 1 for a token, 0 for padding.
    pub(crate) mask: Vec<i64>,
    pub(crate) rows: usize,
    pub(crate) length: usize,
}

/// Turns texts into token ids.
#[derive(Debug)]
pub(crate) struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
    vocabulary: usize,
}

impl Tokenizer {
    /// A tokenizer with the vocabulary of the tickets.
    ///
    /// # Errors
    ///
    /// The crate's error for the vocabulary.
    pub(crate) fn new() -> tokenizers::Result<Self> {
        let mut pieces: Vec<String> = vec!["[PAD]".to_owned(), UNKNOWN.to_owned(), "#".to_owned(), ".".to_owned()];
        pieces.extend((0..10).flat_map(|digit| [digit.to_string(), format!("##{digit}")]));
        for word in corpus::words() {
            match word.split_at_checked(PREFIX) {
                Some((prefix, rest)) if !rest.is_empty() => pieces.extend([prefix.to_owned(), format!("##{rest}")]),
                _ => pieces.push(word.to_owned()),
            }
        }
        let mut seen = rustc_hash::FxHashSet::default();
        pieces.retain(|piece| seen.insert(piece.clone()));
        let vocabulary = pieces.len();
        let vocab: serde_json::Map<_, _> = pieces.into_iter().zip((0_u32..).map(Into::into)).collect();
        let model = json!({
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        });
        let normalizer = json!({
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": null,
            "lowercase": true,
        });
        let settings = json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": normalizer,
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": model,
        });
        let tokenizer = tokenizers::Tokenizer::from_bytes(settings.to_string())?;
        Ok(Self { tokenizer, vocabulary })
    }

    /// How many different token ids there are.
    pub(crate) const fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Tokenizes texts; each is cut after [`MAX_TOKENS`] tokens.
    ///
    /// # Errors
    ///
    /// The crate's error for a text.
    pub(crate) fn tokenize<T: AsRef<str>>(&self, texts: &[T]) -> tokenizers::Result<Tokens> {
        let mut rows = Vec::with_capacity(texts.len());
        for text in texts {
            rows.push(self.tokenizer.encode_fast(text.as_ref(), false)?);
        }
        let count = |row: &tokenizers::Encoding| row.len().min(MAX_TOKENS);
        let length = rows.iter().map(count).max().unwrap_or(0).max(1);
        let (mut ids, mut mask) = (Vec::with_capacity(rows.len() * length), Vec::with_capacity(rows.len() * length));
        for row in &rows {
            let tokens = count(row);
            ids.extend(row.get_ids().iter().take(tokens).map(|id| i64::from(*id)));
            ids.extend(std::iter::repeat_n(PADDING, length - tokens));
            mask.extend((0..length).map(|at| i64::from(at < tokens)));
        }
        Ok(Tokens { ids, mask, rows: rows.len(), length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_ticket_is_known_and_rows_are_filled_up() {
        let tokenizer = Tokenizer::new().unwrap();
        let texts: Vec<String> = corpus::tickets(9, 50).into_iter().map(|ticket| ticket.text).collect();
        let tokens = tokenizer.tokenize(&texts).unwrap();
        assert_eq!((tokens.rows, tokens.ids.len()), (50, 50 * tokens.length));
        assert!((24..=MAX_TOKENS).contains(&tokens.length), "{}", tokens.length);
        let vocabulary = i64::try_from(tokenizer.vocabulary()).unwrap();
        assert!(tokens.ids.iter().all(|id| *id != 1 && (0..vocabulary).contains(id)));
        for (ids, mask) in tokens.ids.chunks(tokens.length).zip(tokens.mask.chunks(tokens.length)) {
            assert!(ids.iter().zip(mask).all(|(id, mask)| (*mask == 0) == (*id == PADDING)));
            assert!(mask.is_sorted_by(|a, b| a >= b));
        }
    }

    #[test]
    fn words_are_lower_cased_and_split_and_strange_ones_are_unknown() {
        let tokenizer = Tokenizer::new().unwrap();
        let tokens = tokenizer.tokenize(&["Subscription", "subscr", "xyzzy"]).unwrap();
        assert_eq!((tokens.length, tokens.mask), (2, vec![1, 1, 1, 0, 1, 0]));
        assert_eq!(tokens.ids[0], tokens.ids[2]);
        assert_eq!(&tokens.ids[4..], [1, PADDING]);
        assert_eq!(tokenizer.tokenize::<&str>(&[]).unwrap().length, 1);
    }
}
