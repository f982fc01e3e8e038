//! A named tensor, its elements as they are on the wire.

use bytes::Bytes;

use super::AnswerDecodeError;
use super::element::{ElementType, Number};

/// The most dimensions of a tensor.
pub(crate) const MAX_DIMENSIONS: usize = 16;
/// The most tensors of an answer.
pub(crate) const MAX_TENSORS: usize = 1024;

/// A named tensor whose data fit its shape.
#[derive(Clone, Debug)]
pub(crate) struct DecodedTensor {
    pub(crate) name: String,
    /// The type that the answer names.
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<u64>,
    pub(crate) data: TensorData,
}

/// The elements of a tensor, the last axis first.
#[derive(Clone, Debug)]
pub(crate) enum TensorData {
    /// Little-endian numbers of one type. It is wider than the tensor's own where JSON names a half.
    Numbers(ElementType, Bytes),
    /// Texts or bytes.
    Texts(Vec<Bytes>),
}

impl DecodedTensor {
    /// A tensor of this shape.
    ///
    /// # Errors
    ///
    /// The data do not fit the shape, or a dimension is negative, or there are too many.
    pub(crate) fn new(name: String, element: ElementType, shape: &[i64], data: TensorData) -> Result<Self, AnswerDecodeError> {
        let fault = |reason: String| AnswerDecodeError::malformed(format!("tensor {}: {reason}", shown_name(&name)));
        if shape.len() > MAX_DIMENSIONS {
            return Err(fault(format!("{} dimensions, more than {MAX_DIMENSIONS}", shape.len())));
        }
        let sizes: Option<Vec<u64>> = shape.iter().map(|size| u64::try_from(*size).ok()).collect();
        let shape = sizes.ok_or_else(|| fault(format!("shape {shape:?} has a negative dimension")))?;
        let expected = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let held = data.len();
        if expected != Some(held as u64) {
            return Err(fault(format!("shape {shape:?} does not fit {held} elements")));
        }
        Ok(Self { name, element, shape, data })
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    /// The element at a flat index; `None` for texts.
    pub(crate) fn number(&self, index: usize) -> Option<Number> {
        match &self.data {
            TensorData::Numbers(element, data) => Some(element.read(data, index)),
            TensorData::Texts(_) => None,
        }
    }

    /// The number of elements of a row of the last axis.
    pub(crate) fn last_axis(&self) -> usize {
        self.shape.last().map_or(1, |size| usize::try_from(*size).unwrap_or(usize::MAX)).max(1)
    }

    /// The number of elements of a row of the first axis, which is that of the batch.
    pub(crate) fn row_elements(&self) -> usize {
        let rows = self.shape.first().map_or(1, |size| usize::try_from(*size).unwrap_or(usize::MAX)).max(1);
        (self.len() / rows).max(1)
    }

    /// A flat index by axis: `[3, 1]`.
    pub(crate) fn position(&self, index: usize) -> String {
        let mut rest = index as u64;
        let mut axes: Vec<u64> = Vec::with_capacity(self.shape.len());
        for size in self.shape.iter().rev() {
            axes.push(rest % (*size).max(1));
            rest /= (*size).max(1);
        }
        axes.reverse();
        format!("{axes:?}")
    }
}

impl TensorData {
    fn len(&self) -> usize {
        match self {
            // an incomplete element makes the data fit no shape
            Self::Numbers(element, data) => match element.bytes() {
                Some(bytes) if data.len() % bytes == 0 => data.len() / bytes,
                _ => usize::MAX,
            },
            Self::Texts(texts) => texts.len(),
        }
    }

    /// Reads binary data as they follow a JSON head, or as they are in `raw_output_contents`: numbers little-endian, each text after
    /// its length in four bytes.
    pub(crate) fn from_raw(element: ElementType, data: Bytes) -> Result<Self, AnswerDecodeError> {
        if element.bytes().is_some() {
            return Ok(Self::Numbers(element, data));
        }
        let (mut texts, mut rest) = (Vec::new(), data);
        while !rest.is_empty() {
            let length = rest.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
            let Some(length) = length.filter(|length| *length <= rest.len() - 4) else {
                return Err(AnswerDecodeError::malformed("a text of binary data is longer than the data"));
            };
            let mut text = rest.split_off(4);
            rest = text.split_off(length);
            texts.push(text);
        }
        Ok(Self::Texts(texts))
    }
}

/// A name for messages, cut where it is long.
pub(crate) fn shown_name(name: &str) -> String {
    name.chars().take(64).collect()
}
