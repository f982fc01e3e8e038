//! Weights that lie in files of their own. They are read here, because rten takes only some names and places of such files.

use std::path::Path;

use lapwing_onnx::EngineError;
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{StringStringEntryProto, TensorProto};

/// Weights that lie in files of their own.
pub(crate) struct External<'a> {
    folder: Option<&'a Path>,
    /// Their places and contents.
    files: Vec<(String, Vec<u8>)>,
}

impl<'a> External<'a> {
    /// None yet; the files are in `folder`.
    pub(crate) const fn of(folder: Option<&'a Path>) -> Self {
        Self { folder, files: Vec::new() }
    }

    /// The files, by the names by which rten asks for them.
    pub(crate) fn into_files(self) -> Vec<(String, Vec<u8>)> {
        self.files.into_iter().enumerate().map(|(at, (_, data))| (Self::name(at), data)).collect()
    }

    /// The name by which rten asks for a file.
    fn name(at: usize) -> String {
        format!("{at}.data")
    }

    /// Reads the file of a tensor, once, and writes the tensor's place in it as rten expects it.
    pub(crate) fn take(&mut self, tensor: &mut TensorProto) -> Result<(), EngineError> {
        if tensor.data_location != Some(1) {
            return Ok(());
        }
        let fails = |reason: String| EngineError::part(format!("initializer {}", tensor.name), reason);
        let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.clone());
        let location = entry("location").ok_or_else(|| fails("its external data has no location".to_owned()))?;
        let at = match self.files.iter().position(|(known, _)| *known == location) {
            Some(at) => at,
            None => {
                let folder = self.folder.ok_or_else(|| fails("lies outside of the file, which has no folder".to_owned()))?;
                let data = std::fs::read(folder.join(&location))
                    .map_err(|e| fails(format!("lies in {location:?}, which cannot be read: {e}")))?;
                self.files.push((location, data));
                self.files.len() - 1
            }
        };
        let elements = tensor.dims.iter().try_fold(1_u64, |product, length| product.checked_mul(u64::try_from(*length).ok()?));
        let whole = elements.and_then(|elements| elements.checked_mul(width(tensor.data_type)?));
        let offset = entry("offset").unwrap_or_else(|| "0".to_owned());
        let length = entry("length").or(whole.map(|bytes| bytes.to_string()));
        let length = length.ok_or_else(|| fails("its external data has no length".to_owned()))?;
        let pairs = [("location", Self::name(at)), ("offset", offset), ("length", length)];
        tensor.external_data =
            pairs.into_iter().map(|(key, value)| StringStringEntryProto { key: key.to_owned(), value }).collect();
        Ok(())
    }

    /// The bytes of a tensor that [`Self::take`] has seen.
    pub(crate) fn bytes(&self, tensor: &TensorProto) -> Option<&[u8]> {
        let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
        let number = |key: &str| entry(key)?.parse::<usize>().ok();
        let at = entry("location")?.strip_suffix(".data")?.parse::<usize>().ok()?;
        let offset = number("offset")?;
        self.files.get(at)?.1.get(offset..offset.checked_add(number("length")?)?)
    }
}

/// Bytes of one element in raw data.
fn width(kind: i32) -> Option<u64> {
    use DataType::{Bfloat16, Bool, Double, Float, Float16, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64};
    Some(match DataType::try_from(kind).ok()? {
        Bool | Int8 | Uint8 => 1,
        Int16 | Uint16 | Float16 | Bfloat16 => 2,
        Float | Int32 | Uint32 => 4,
        Double | Int64 | Uint64 => 8,
        _ => return None,
    })
}
