//! Texts as the inputs of a model that reads tokens: ids, the mask of those that are not filled up, and segments.

use bytes::{Bytes, BytesMut};

use super::call::{InputTensor, MappingFault, ModelPorts};
use super::config::MappingRule;
use lapwing_compare::outputs::{Document, TensorPort, ValuePath, read_texts};
use lapwing_protocol::{EncodedText, TextEncoder};

/// The inputs that texts become, by their usual names. The last is left out where the model has none.
const NAMES: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];

/// Where a request has texts, and what they become.
#[derive(Debug)]
pub(crate) struct TextMapping {
    path: ValuePath,
    encoder: TextEncoder,
    /// In the order of [`NAMES`].
    ports: Vec<TensorPort>,
}

impl TextMapping {
    /// The mapping of the texts of a rule; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Why the model cannot take texts, or the tokenizer cannot be read.
    pub(crate) fn new(rule: &MappingRule, model: &ModelPorts) -> Result<Option<Self>, String> {
        let (Some(text), Some(file)) = (&rule.text, &rule.tokenizer) else { return Ok(None) };
        let mut ports = Vec::with_capacity(NAMES.len());
        for name in NAMES {
            match model.inputs.iter().find(|port| port.name == name) {
                Some(port) if !matches!(port.datatype(), "INT64" | "INT32") => {
                    return Err(format!("text: {name} of the model is {}, and must be INT64 or INT32", port.datatype()));
                }
                Some(port) => ports.push(port.clone()),
                None if name == NAMES[2] => {}
                None => return Err(format!("text: becomes {} and {}, and the model has no input {name}", NAMES[0], NAMES[1])),
            }
        }
        let encoder = TextEncoder::load(file, rule.max_tokens);
        let encoder = encoder.map_err(|error| format!("tokenizer: {}: {error}", file.display()))?;
        let path = ValuePath::parse(text).map_err(|reason| format!("text: {text}: {reason}"))?;
        Ok(Some(Self { path, encoder, ports }))
    }

    /// The inputs that it gives.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &TensorPort> {
        self.ports.iter()
    }

    /// The texts of a document as one batch: filled up to the longest with the tokenizer's padding, which the mask hides. They take at
    /// most `left` bytes of the `limit` of all inputs.
    pub(crate) fn tensors(&self, document: &Document, left: usize, limit: usize) -> Result<Vec<InputTensor<'_>>, MappingFault> {
        let name = || format!("text: {}", self.path);
        let (shape, texts) =
            read_texts(document.root(), &self.path).map_err(|fault| MappingFault::of_value(name(), &fault, limit))?;
        if shape.len() > 1 {
            return Err(MappingFault::Shape { input: name(), found: shape, wanted: "a text, or a list of texts".to_owned() });
        }
        if texts.is_empty() {
            return Err(MappingFault::Tokens("the list is empty".to_owned()));
        }
        // the bytes of one column of the batch
        let column = self.ports.iter().map(size).sum::<usize>().saturating_mul(texts.len());
        let (mut encoded, mut longest): (Vec<EncodedText>, _) = (Vec::new(), 1);
        for (at, text) in texts.into_iter().enumerate() {
            if column.saturating_mul(longest) > left {
                return Err(MappingFault::TooLarge { input: name(), limit });
            }
            let tokens = self.encoder.encode(text).filter(|tokens| !tokens.ids.is_empty());
            let tokens = tokens.ok_or_else(|| MappingFault::Tokens(format!("the tokenizer makes nothing of text {at}")))?;
            longest = longest.max(tokens.ids.len());
            encoded.push(tokens);
        }
        if column.saturating_mul(longest) > left {
            return Err(MappingFault::TooLarge { input: name(), limit });
        }
        let mut tensors = Vec::with_capacity(self.ports.len());
        for (port, of) in self.ports.iter().zip([Self::ids, Self::mask, Self::segments]) {
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
        Ok(tensors)
    }

    fn ids(&self, text: &EncodedText, at: usize) -> u32 {
        text.ids.get(at).copied().unwrap_or(self.encoder.pad_id())
    }

    fn mask(&self, text: &EncodedText, at: usize) -> u32 {
        u32::from(at < text.ids.len())
    }

    fn segments(&self, text: &EncodedText, at: usize) -> u32 {
        text.type_ids.get(at).copied().unwrap_or(0)
    }
}

/// The bytes of an element of INT64 or INT32.
fn size(port: &TensorPort) -> usize {
    if port.datatype() == "INT64" { 8 } else { 4 }
}
