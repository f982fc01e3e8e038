//! Named values of a request as the columns of one input: `{"amount": 12.5, "age": 31}` as a row of two numbers, and lists of such
//! values as rows.

use bytes::{Bytes, BytesMut};

use super::call::{InputTensor, MappingFault};
use lapwing_compare::outputs::{Document, MappedTensor, TensorPort};

/// An input, and where a request has its columns.
#[derive(Debug)]
pub(crate) struct ColumnMapping {
    port: TensorPort,
    columns: Vec<MappedTensor>,
}

/// A column: one value, or one of each row.
struct Column {
    /// `None`: one value, which all rows have.
    rows: Option<usize>,
    data: Bytes,
}

impl ColumnMapping {
    /// The columns of an input, of which there is one at least.
    pub(crate) const fn new(port: TensorPort, columns: Vec<MappedTensor>) -> Self {
        Self { port, columns }
    }

    /// The input of a document, a row of the columns for each of their elements. A column of one value has it in each row. It takes at
    /// most `left` bytes of the `limit` of all inputs.
    pub(crate) fn tensor(&self, document: &Document, left: usize, limit: usize) -> Result<InputTensor<'_>, MappingFault> {
        let name = |column: &MappedTensor| format!("columns.{}: {}", self.port.name, column.path);
        let (mut columns, mut rows): (Vec<Column>, Option<usize>) = (Vec::new(), None);
        let mut read_bytes = 0_usize;
        for column in &self.columns {
            let read = column.read(document, left.saturating_sub(read_bytes));
            let read = read.map_err(|fault| MappingFault::of_value(name(column), &fault, limit))?;
            read_bytes += read.data.len();
            let length = match read.shape[..] {
                [] => None,
                [length] => Some(length),
                _ => return Err(self.misfit(name(column), read.shape, "a value, or a list of values")),
            };
            if let (Some(own), Some(others)) = (length, rows)
                && own != others
            {
                return Err(self.misfit(name(column), vec![own], &format!("{others} rows, as other columns")));
            }
            rows = rows.or(length);
            columns.push(Column { rows: length, data: read.data });
        }
        let shape = rows.map_or_else(|| vec![columns.len()], |rows| vec![rows, columns.len()]);
        let input = || format!("columns.{}", self.port.name);
        let fitted = self.port.fit(&shape).filter(|shape| !shape.contains(&0));
        let fitted = fitted.ok_or_else(|| self.misfit(input(), shape, &self.port.shown_shape()))?;
        let data = interleaved(&columns, rows.unwrap_or(1), self.port.element_bytes(), left);
        let data = data.ok_or_else(|| MappingFault::TooLarge { input: input(), limit })?;
        Ok(InputTensor { port: &self.port, shape: fitted, data })
    }

    fn misfit(&self, input: String, found: Vec<usize>, wanted: &str) -> MappingFault {
        MappingFault::Shape { input, found, wanted: wanted.to_owned() }
    }
}

/// The elements of all columns, row by row; `None` if they take more than `limit` bytes.
fn interleaved(columns: &[Column], rows: usize, element_bytes: Option<usize>, limit: usize) -> Option<Bytes> {
    let mut rest: Vec<&[u8]> = columns.iter().map(|column| &column.data[..]).collect();
    let mut data = BytesMut::new();
    for _ in 0..rows {
        for (column, rest) in columns.iter().zip(&mut rest) {
            let length = match (element_bytes, rest.first_chunk()) {
                (Some(bytes), _) => bytes,
                // a text stands after its length
                (None, Some(length)) => 4 + u32::from_le_bytes(*length) as usize,
                (None, None) => return None,
            };
            let element = rest.get(..length)?;
            if data.len() + length > limit {
                return None;
            }
            data.extend_from_slice(element);
            if column.rows.is_some() {
                *rest = &rest[length..];
            }
        }
    }
    Some(data.freeze())
}
