//! Texts, or pairs of texts, as the inputs of a model that reads tokens: ids, the mask of those that are not filled up, segments, and
//! positions.

use std::path::Path;

use bytes::{Bytes, BytesMut};

use super::call::{InputTensor, MappingFault, ModelPorts};
use super::config::MappingRule;
use lapwing_compare::outputs::{Document, TensorPort, ValuePath, read_texts};
use lapwing_protocol::{EncodedText, TextEncoder};

/// The inputs that texts become, by their usual names. All but the first are left out where the model has none.
const NAMES: [&str; 4] = ["input_ids", "attention_mask", "token_type_ids", "position_ids"];

/// Where a request has texts, and what they become.
#[derive(Debug)]
pub(crate) struct TextMapping {
    path: ValuePath,
    /// Where the second texts of pairs are.
    pair: Option<ValuePath>,
    encoder: TextEncoder,
    /// With the place of each in [`NAMES`].
    ports: Vec<(usize, TensorPort)>,
}

/// The inputs of texts, and how many tokens each text has.
pub(crate) struct TextTensors<'m> {
    pub(crate) tensors: Vec<InputTensor<'m>>,
    pub(crate) token_counts: Vec<u32>,
}

impl TextMapping {
    /// The mapping of the texts of a rule, for the model in `file`; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Why the model cannot take texts, or the tokenizer cannot be read.
    pub(crate) fn new(rule: &MappingRule, model: &ModelPorts, file: &Path) -> Result<Option<Self>, String> {
        let Some(text) = &rule.text else { return Ok(None) };
        let mut ports = Vec::with_capacity(NAMES.len());
        for (at, name) in NAMES.into_iter().enumerate() {
            match model.inputs.iter().find(|port| port.name == name) {
                Some(port) if !matches!(port.datatype(), "INT64" | "INT32") => {
                    return Err(format!("text: {name} of the model is {}, and must be INT64 or INT32", port.datatype()));
                }
                // what the configuration maps itself
                Some(_) if at > 1 && rule.maps(name) => {}
                Some(port) => ports.push((at, port.clone())),
                None if at > 0 => {}
                None => return Err(format!("text: becomes {name}, and the model has no input {name}")),
            }
        }
        let path = |key: &str, path: &str| ValuePath::parse(path).map_err(|reason| format!("{key}: {path}: {reason}"));
        let pair = rule.text_pair.as_deref().map(|pair| path("text_pair", pair)).transpose()?;
        let (encoder, cut) = rule.encoder(file).map_err(|reason| format!("tokenizer: {reason}"))?;
        tracing::info!(route = rule.route, model = %file.display(), "{cut}");
        Ok(Some(Self { path: path("text", text)?, pair, encoder, ports }))
    }

    /// The inputs that it gives.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &TensorPort> {
        self.ports.iter().map(|(_, port)| port)
    }

    /// Whether there is a single text at a path, and the texts.
    fn read<'d>(&self, document: &'d Document, path: &ValuePath, limit: usize) -> Result<(bool, Vec<&'d str>), MappingFault> {
        let name = || format!("text: {path}");
        let (shape, texts) = read_texts(document.root(), path).map_err(|fault| MappingFault::of_value(name(), &fault, limit))?;
        // lists of one text each are a list of texts
        if shape.iter().skip(1).any(|length| *length != 1) {
            return Err(MappingFault::Shape { input: name(), found: shape, wanted: "a text, or a list of texts".to_owned() });
        }
        if texts.is_empty() {
            return Err(MappingFault::Tokens("the list is empty".to_owned()));
        }
        Ok((shape.is_empty(), texts))
    }

    /// The texts of a document, or pairs of texts; a single text is paired with each of several.
    fn read_all<'d>(&self, document: &'d Document, limit: usize) -> Result<Vec<(&'d str, Option<&'d str>)>, MappingFault> {
        let (is_one, firsts) = self.read(document, &self.path, limit)?;
        let Some(pair) = &self.pair else { return Ok(firsts.into_iter().map(|text| (text, None)).collect()) };
        let (is_one_second, seconds) = self.read(document, pair, limit)?;
        let rows = firsts.len().max(seconds.len());
        let repeats = |is_one: bool, length: usize| length == rows || is_one;
        if !repeats(is_one, firsts.len()) || !repeats(is_one_second, seconds.len()) {
            let input = format!("text_pair: {pair}");
            return Err(MappingFault::Shape { input, found: vec![seconds.len()], wanted: format!("{} texts", firsts.len()) });
        }
        let at = |texts: &[&'d str], row: usize| texts[if texts.len() == rows { row } else { 0 }];
        let pairs: Vec<_> = (0..rows).map(|row| (at(&firsts, row), Some(at(&seconds, row)))).collect();
        // a long text that is repeated is tokenized each time
        let bytes = pairs.iter().fold(0_usize, |sum, (a, b)| sum.saturating_add(a.len() + b.map_or(0, str::len)));
        if bytes > limit {
            return Err(MappingFault::TooLarge { input: format!("text_pair: {pair}"), limit });
        }
        Ok(pairs)
    }

    /// The texts of a document as one batch: filled up to the longest with the tokenizer's padding, which the mask hides. They take at
    /// most `left` bytes of the `limit` of all inputs.
    pub(crate) fn tensors(&self, document: &Document, left: usize, limit: usize) -> Result<TextTensors<'_>, MappingFault> {
        let name = || format!("text: {}", self.path);
        let texts = self.read_all(document, limit)?;
        // the bytes of one column of the batch
        let column = self.ports().map(size).sum::<usize>().saturating_mul(texts.len());
        let (mut encoded, mut longest): (Vec<EncodedText>, _) = (Vec::new(), 1);
        for (at, (text, second)) in texts.into_iter().enumerate() {
            if column.saturating_mul(longest) > left {
                return Err(MappingFault::TooLarge { input: name(), limit });
            }
            let tokens = match second {
                Some(second) => self.encoder.encode_pair(text, second),
                None => self.encoder.encode(text),
            };
            let tokens = tokens.filter(|tokens| !tokens.ids.is_empty());
            let tokens = tokens.ok_or_else(|| MappingFault::Tokens(format!("the tokenizer makes nothing of text {at}")))?;
            longest = longest.max(tokens.ids.len());
            encoded.push(tokens);
        }
        if column.saturating_mul(longest) > left {
            return Err(MappingFault::TooLarge { input: name(), limit });
        }
        let has_mask = self.ports.iter().any(|(at, _)| *at == 1);
        if !has_mask && encoded.iter().any(|text| text.ids.len() != longest) {
            return Err(MappingFault::Tokens("they have unequal lengths, and the model has no attention_mask".to_owned()));
        }
        let mut tensors = Vec::with_capacity(self.ports.len());
        for (at, port) in &self.ports {
            let of = [Self::ids, Self::mask, Self::segments, Self::positions][*at];
            let shape = vec![encoded.len(), longest];
            if port.fit(&shape).is_none_or(|fitted| fitted != shape) {
                let input = format!("text: {} as {}", self.path, port.name);
                return Err(MappingFault::Shape { input, found: shape, wanted: port.shown_shape() });
            }
            let mut data = BytesMut::with_capacity(size(port) * encoded.len() * longest);
            let columns = encoded.iter().flat_map(|text| (0..longest).map(move |at| of(self, text, at)));
            match size(port) {
                8 => columns.for_each(|value| data.extend_from_slice(&i64::from(value).to_le_bytes())),
                _ => columns.for_each(|value| data.extend_from_slice(&value.to_le_bytes())),
            }
            tensors.push(InputTensor { port, shape, data: Bytes::from(data) });
        }
        let token_counts = encoded.iter().map(|text| u32::try_from(text.ids.len()).unwrap_or(u32::MAX)).collect();
        Ok(TextTensors { tensors, token_counts })
    }

    fn ids(&self, text: &EncodedText, at: usize) -> u32 {
        text.ids.get(at).copied().unwrap_or(self.encoder.pad_id())
    }

    fn mask(&self, text: &EncodedText, at: usize) -> u32 {
        u32::from(at < text.ids.len())
    }

    fn positions(&self, _: &EncodedText, at: usize) -> u32 {
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    fn segments(&self, text: &EncodedText, at: usize) -> u32 {
        text.type_ids.get(at).copied().unwrap_or(0)
    }
}

/// The bytes of an element of INT64 or INT32.
fn size(port: &TensorPort) -> usize {
    if port.datatype() == "INT64" { 8 } else { 4 }
}
