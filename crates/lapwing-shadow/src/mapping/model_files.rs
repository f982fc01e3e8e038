//! The files that come with a model, as Hugging Face's libraries write them, and what they say of texts and labels.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The largest file that is read, in bytes. A `tokenizer.json` of 250,000 pieces has 17 MB.
const MAX_FILE: u64 = 256 << 20;
/// The most tokens that a file may say; tokenizers without a limit have 10³⁰ there.
const MAX_TOKENS: f64 = 32_768.0;
/// Where no file says how many tokens a text has at most.
const DEFAULT_TOKENS: usize = 512;
/// Models that count positions from the one behind their padding token.
const OFFSET_POSITIONS: [&str; 5] = ["roberta", "xlm-roberta", "camembert", "mpnet", "data2vec-text"];

/// The folder of a model or of its tokenizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelFiles<'p>(&'p Path);

#[derive(Deserialize)]
struct SentenceBert {
    max_seq_length: Option<f64>,
}

#[derive(Deserialize)]
struct TokenizerConfig {
    model_max_length: Option<f64>,
}

#[derive(Deserialize)]
struct Tokenizer {
    truncation: Option<Truncation>,
}

#[derive(Deserialize)]
struct Truncation {
    max_length: f64,
}

#[derive(Deserialize)]
struct ModelConfig {
    max_position_embeddings: Option<f64>,
    model_type: Option<String>,
    pad_token_id: Option<f64>,
}

#[derive(Deserialize)]
struct LabelConfig {
    id2label: BTreeMap<String, String>,
}

impl<'p> ModelFiles<'p> {
    /// The files in the folder of `file`.
    pub(crate) fn beside(file: &'p Path) -> Self {
        Self(file.parent().unwrap_or_else(|| Path::new("")))
    }

    /// A file of this name beside a model, or one folder above where the model is in a folder `onnx`, as Optimum has it.
    ///
    /// # Errors
    ///
    /// Where it was looked for.
    pub(crate) fn find(self, name: &str) -> Result<PathBuf, String> {
        let above = self.0.parent().filter(|_| self.0.file_name().is_some_and(|folder| folder == "onnx"));
        let places: Vec<PathBuf> = [Some(self.0), above].into_iter().flatten().map(|folder| folder.join(name)).collect();
        let found = places.iter().find(|place| place.is_file()).cloned();
        found.ok_or_else(|| places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(" and "))
    }

    /// How many tokens a text has at most, special ones included, and which of the files says so: the first of
    /// `sentence_bert_config.json`, `tokenizer_config.json`, `tokenizer.json` and `config.json`.
    pub(crate) fn max_tokens(self, tokenizer: &Path) -> (usize, String) {
        let of = |name: &str, count: Option<f64>| count.and_then(token_count).map(|count| (count, name.to_owned()));
        let sentence = || of("sentence_bert_config.json", self.read::<SentenceBert>("sentence_bert_config.json")?.max_seq_length);
        let config = || of("tokenizer_config.json", self.read::<TokenizerConfig>("tokenizer_config.json")?.model_max_length);
        let truncation = || of("tokenizer.json", Some(read::<Tokenizer>(tokenizer).ok()?.truncation?.max_length));
        let positions = || of("config.json", self.read::<ModelConfig>("config.json")?.positions());
        let found = sentence().or_else(config).or_else(truncation).or_else(positions);
        found.unwrap_or_else(|| (DEFAULT_TOKENS, "no file beside the tokenizer, so the default".to_owned()))
    }

    /// The labels in a `config.json`, in the order of their ids.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub(crate) fn labels(file: &Path) -> Result<Vec<String>, String> {
        let LabelConfig { id2label } = read(file)?;
        let label = |id: usize| id2label.get(&id.to_string()).cloned();
        let labels: Option<Vec<String>> = (0..id2label.len()).map(label).collect();
        labels.filter(|labels| !labels.is_empty()).ok_or_else(|| "id2label does not have the ids from 0 on".to_owned())
    }

    /// The content of a file.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    pub(crate) fn text(file: &Path) -> Result<Vec<u8>, String> {
        let opened = File::open(file).map_err(|error| format!("cannot be read: {error}"))?;
        let mut text = Vec::new();
        opened.take(MAX_FILE).read_to_end(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(text)
    }

    fn read<T: DeserializeOwned>(self, name: &str) -> Option<T> {
        read(&self.find(name).ok()?).ok()
    }
}

impl ModelConfig {
    /// How many tokens have a position.
    fn positions(self) -> Option<f64> {
        let is_offset = self.model_type.is_some_and(|kind| OFFSET_POSITIONS.contains(&kind.as_str()));
        let offset = if is_offset { self.pad_token_id.unwrap_or(1.0) + 1.0 } else { 0.0 };
        self.max_position_embeddings.map(|positions| positions - offset)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in the range")]
fn token_count(count: f64) -> Option<usize> {
    (8.0..=MAX_TOKENS).contains(&count).then_some(count as usize)
}

/// A file of JSON.
fn read<T: DeserializeOwned>(file: &Path) -> Result<T, String> {
    let text = ModelFiles::text(file)?;
    serde_json::from_slice(&text).map_err(|error| format!("is not what is expected: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("lapwing-model-files-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("onnx")).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_most_tokens_are_what_the_first_file_says_that_knows() {
        let folder = Folder::new("tokens");
        let (model, tokenizer) = (folder.0.join("onnx/model.onnx"), folder.0.join("tokenizer.json"));
        let most = || ModelFiles::beside(&model).max_tokens(&tokenizer);
        assert_eq!(most().0, 512);
        folder.write("config.json", r#"{"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}"#);
        assert_eq!(most(), (512, "config.json".to_owned()));
        folder.write("config.json", r#"{"max_position_embeddings": 2048, "model_type": "bert"}"#);
        assert_eq!(most(), (2048, "config.json".to_owned()));
        folder.write("tokenizer.json", r#"{"truncation": {"max_length": 128}, "model": {}}"#);
        assert_eq!(most(), (128, "tokenizer.json".to_owned()));
        folder.write("tokenizer_config.json", r#"{"model_max_length": 1e30}"#);
        assert_eq!(most().0, 128, "no limit is none");
        folder.write("tokenizer_config.json", r#"{"model_max_length": 384}"#);
        folder.write("sentence_bert_config.json", r#"{"max_seq_length": null}"#);
        assert_eq!(most(), (384, "tokenizer_config.json".to_owned()));
        folder.write("sentence_bert_config.json", r#"{"max_seq_length": 256}"#);
        assert_eq!(most(), (256, "sentence_bert_config.json".to_owned()));
    }

    #[test]
    fn files_are_beside_a_model_or_above_a_folder_onnx() {
        let folder = Folder::new("find");
        folder.write("tokenizer.json", "{}");
        assert!(ModelFiles::beside(&folder.0.join("m.onnx")).find("tokenizer.json").is_ok());
        assert!(ModelFiles::beside(&folder.0.join("onnx/m.onnx")).find("tokenizer.json").is_ok());
        let missing = ModelFiles::beside(&folder.0.join("other/m.onnx")).find("tokenizer.json").unwrap_err();
        assert!(missing.ends_with("other/tokenizer.json") && !missing.contains(" and "), "{missing}");
    }

    #[test]
    fn labels_are_in_the_order_of_their_ids() {
        let folder = Folder::new("labels");
        let of = |text: &str| ModelFiles::labels(&folder.write("config.json", text));
        assert_eq!(of(r#"{"id2label": {"1": "dog", "0": "cat"}}"#), Ok(vec!["cat".to_owned(), "dog".to_owned()]));
        for (wrong, expected) in [
            (r#"{"id2label": {"1": "dog"}}"#, "does not have the ids from 0 on"),
            (r#"{"id2label": {}}"#, "does not have the ids"),
            ("{}", "is not what is expected: missing field `id2label`"),
        ] {
            assert!(of(wrong).unwrap_err().contains(expected), "{wrong}");
        }
        assert!(ModelFiles::labels(Path::new("gone.json")).unwrap_err().starts_with("cannot be read"));
    }
}
