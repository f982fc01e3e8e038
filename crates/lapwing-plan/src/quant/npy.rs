//! NumPy's `.npy` files, versions 1 and 2: C order, float32, int64, int32 or bool, little-endian. Any other file is rejected, and
//! the error names the reason. The crate `npyz` parses the header and decodes the elements. Before that, this module checks what
//! the crate does not: the length of the header, the nesting of its brackets, and that the shape matches the number of bytes.

use npyz::{DType, NpyFile, NpyHeader, Order};

/// Longest text of a header, in bytes; as long as version 1 can state.
const TEXT_MAX: usize = 64 * 1024;
/// The deepest nesting of brackets in a header's text: a dictionary with a list of fields, each a tuple with a shape. The parser
/// reads the contents of a bracket up to three times, so its time triples with each level.
const NESTING_MAX: usize = 4;

/// An array.
#[derive(Clone, Debug, PartialEq)]
pub struct Npy {
    /// Lengths of its axes; none for a single number.
    pub shape: Vec<usize>,
    /// Its elements, the last axis first.
    pub values: Values,
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// `<f4`
    F32(Vec<f32>),
    /// `<i8`
    I64(Vec<i64>),
    /// `<i4`
    I32(Vec<i32>),
    /// `|b1`
    Bool(Vec<bool>),
}

impl Values {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    /// It does not start with the magic bytes.
    #[error("header: not a .npy file")]
    Magic,
    /// Its version is not supported.
    #[error("header: version {major}.{minor} is not read, only 1.0 and 2.0 are")]
    Version {
        /// The major version.
        major: u8,
        /// The minor version.
        minor: u8,
    },
    /// The header is not as NumPy writes it.
    #[error("header: {what}")]
    Header {
        /// What is wrong.
        what: String,
    },
    /// The element type is not supported.
    #[error("dtype: {descr} is not read, only <f4, <i8, <i4 and |b1 are")]
    Dtype {
        /// The type by NumPy's name.
        descr: String,
    },
    /// The elements are in Fortran order.
    #[error("fortran_order: only arrays in C order are read")]
    Order,
    /// The shape does not match the number of bytes.
    #[error("shape: {shape:?} takes {needed} bytes of elements, but there are {given}")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// The bytes that it needs; `usize::MAX` if they are more than that.
        needed: usize,
        /// The bytes in the file.
        given: usize,
    },
    /// A bool that is neither 0 nor 1.
    #[error("element {element}: {byte} is no bool")]
    Bool {
        /// The element's index.
        element: usize,
        /// The byte.
        byte: u8,
    },
}

/// Reads a whole file.
///
/// # Errors
/// The file is not a `.npy` file, or its type, order or shape is not supported.
pub fn read(file: &[u8]) -> Result<Npy, NpyError> {
    let (head, body) = split(file)?;
    let header = NpyHeader::from_reader(head).map_err(|e| unparsed(&e))?;
    let DType::Plain(descr) = header.dtype() else { return Err(NpyError::Dtype { descr: "a record".to_owned() }) };
    let descr = descr.to_string();
    let width = match descr.as_str() {
        "<f4" | "<i4" => 4,
        "<i8" => 8,
        "|b1" => 1,
        _ => return Err(NpyError::Dtype { descr }),
    };
    // With one axis, both orders are the same.
    if header.order() == Order::Fortran && header.shape().len() > 1 {
        return Err(NpyError::Order);
    }
    let shape: Vec<usize> = header.shape().iter().map(|axis| usize::try_from(*axis).unwrap_or(usize::MAX)).collect();
    // `npyz` would multiply the lengths without a check for overflow.
    let needed = shape.iter().try_fold(width, |bytes: usize, axis| bytes.checked_mul(*axis)).unwrap_or(usize::MAX);
    if needed != body.len() {
        return Err(NpyError::Length { shape, needed, given: body.len() });
    }
    let array = NpyFile::with_header(header, body);
    let values = match descr.as_str() {
        "<f4" => Values::F32(elements(array, needed / width)?),
        "<i4" => Values::I32(elements(array, needed / width)?),
        "<i8" => Values::I64(elements(array, needed / width)?),
        _ => {
            if let Some((element, byte)) = body.iter().enumerate().find(|(_, byte)| **byte > 1) {
                return Err(NpyError::Bool { element, byte: *byte });
            }
            Values::Bool(elements(array, needed)?)
        }
    };
    Ok(Npy { shape, values })
}

/// Splits a file into its header, which is safe to parse, and the elements behind it.
fn split(file: &[u8]) -> Result<(&[u8], &[u8]), NpyError> {
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or(NpyError::Magic)?;
    let cut = || header("the file ends in it");
    let (len, rest) = match rest {
        [1, 0, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [1 | 2, 0, ..] | [] | [_] => return Err(cut()),
        [major, minor, ..] => return Err(NpyError::Version { major: *major, minor: *minor }),
    };
    let (text, body) = rest.split_at_checked(len).ok_or_else(cut)?;
    if len > TEXT_MAX {
        return Err(header(&format!("its text has {len} bytes, and at most {TEXT_MAX} are read")));
    }
    let nesting = nesting(text);
    if nesting > NESTING_MAX {
        return Err(header(&format!("its brackets nest {nesting} deep, and at most {NESTING_MAX} are read")));
    }
    Ok((&file[..file.len() - body.len()], body))
}

/// The nesting depth of the brackets outside of quotes.
fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut quote, mut escaped) = (None, false);
    for &byte in text {
        match (quote, byte) {
            _ if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(' | b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    deepest
}

fn header(what: &str) -> NpyError {
    NpyError::Header { what: what.to_owned() }
}

/// Converts an error of `npyz`. A syntax error in the header has several lines with the whole text; the first line has the
/// position, and the last says what is missing.
fn unparsed(error: &std::io::Error) -> NpyError {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim);
    let first = lines.next().unwrap_or_default().replace(":  --> ", " at ");
    match lines.next_back() {
        Some(last) => header(&format!("{first}: {}", last.trim_start_matches("= "))),
        None => header(&first),
    }
}

/// The `count` elements of an array, whose number of bytes has been checked.
fn elements<T: npyz::Deserialize>(array: NpyFile<&[u8]>, count: usize) -> Result<Vec<T>, NpyError> {
    let mut values = Vec::with_capacity(count);
    for value in array.data().map_err(|e| header(&e.to_string()))? {
        values.push(value.map_err(|e| unparsed(&e))?);
    }
    Ok(values)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file as NumPy writes it: the header padded to whole 64 bytes.
    pub(crate) fn file(version: u8, descr: &str, fortran: &str, shape: &str, body: &[u8]) -> Vec<u8> {
        let mut text = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}");
        let fixed = if version == 1 { 10 } else { 12 };
        while (fixed + text.len() + 1) % 64 != 0 {
            text.push(' ');
        }
        text.push('\n');
        let mut file = [b"\x93NUMPY".as_slice(), &[version, 0]].concat();
        file.extend(&u32::try_from(text.len()).unwrap().to_le_bytes()[..fixed - 8]);
        file.extend(text.as_bytes());
        file.extend(body);
        file
    }

    #[test]
    fn every_type_and_both_versions() {
        for version in [1, 2] {
            let floats = [1.5f32, -0.0, 3.0, 4.0, 5.0, f32::MIN].map(f32::to_le_bytes).concat();
            let npy = read(&file(version, "'<f4'", "False", "(2, 3)", &floats)).unwrap();
            assert_eq!(npy, Npy { shape: vec![2, 3], values: Values::F32(vec![1.5, 0.0, 3.0, 4.0, 5.0, f32::MIN]) });
            let longs = [1i64, i64::MIN].map(i64::to_le_bytes).concat();
            assert_eq!(read(&file(version, "'<i8'", "True", "(2,)", &longs)).unwrap().values, Values::I64(vec![1, i64::MIN]));
            let one = read(&file(version, "'<i4'", "False", "()", &7i32.to_le_bytes())).unwrap();
            assert_eq!((one.shape.len(), one.values), (0, Values::I32(vec![7])));
            let masks = read(&file(version, "'|b1'", "False", "(1, 2)", &[1, 0])).unwrap();
            assert_eq!(masks.values, Values::Bool(vec![true, false]));
        }
        assert!(read(&file(1, "'<f4'", "False", "(0, 4)", &[])).unwrap().values.is_empty());
    }

    #[test]
    fn what_is_not_read_is_named() {
        let tell = |file: &[u8]| read(file).unwrap_err().to_string();
        assert_eq!(tell(b"PK\x03\x04"), "header: not a .npy file");
        assert_eq!(tell(b"\x93NUMPY\x03\x00aaaa"), "header: version 3.0 is not read, only 1.0 and 2.0 are");
        assert_eq!(tell(b"\x93NUMPY\x01\x00\xff\x00{"), "header: the file ends in it");
        assert_eq!(tell(&file(1, "'>f4'", "False", "(1,)", &[0; 4])), "dtype: >f4 is not read, only <f4, <i8, <i4 and |b1 are");
        assert_eq!(
            tell(&file(1, "[('a', '<f4')]", "False", "(1,)", &[0; 4])),
            "dtype: a record is not read, only <f4, <i8, <i4 and |b1 are"
        );
        assert_eq!(tell(&file(1, "'<f4'", "True", "(1, 1)", &[0; 4])), "fortran_order: only arrays in C order are read");
        assert_eq!(
            tell(&file(1, "'<f4'", "False", "(2, 2)", &[0; 12])),
            "shape: [2, 2] takes 16 bytes of elements, but there are 12"
        );
        assert_eq!(tell(&file(1, "'<f4'", "False", "(-1,)", &[])), "header: dimension cannot be negative");
        assert_eq!(tell(&file(1, "'<f4'", "0", "(1,)", &[])), "header: 'fortran_order' value is not a bool");
        assert_eq!(tell(&file(1, "'|b1'", "False", "(2,)", &[1, 2])), "element 1: 2 is no bool");
        let huge = format!("({0}, {0})", usize::MAX);
        assert!(matches!(read(&file(1, "'<f4'", "False", &huge, &[])), Err(NpyError::Length { needed: usize::MAX, .. })));
        let mut keyless = file(1, "'<f4'", "False", "(1,)", &[0; 4]);
        keyless[11 + 1] = b'x';
        assert_eq!(tell(&keyless), "header: dict is missing key 'descr'");
    }

    /// A file with only a header.
    fn bare(text: &[u8]) -> Vec<u8> {
        [b"\x93NUMPY\x02\x00", u32::try_from(text.len()).unwrap().to_le_bytes().as_slice(), text].concat()
    }

    #[test]
    fn a_hostile_header_is_refused_before_it_is_parsed() {
        let tell = |text: &[u8]| read(&bare(text)).unwrap_err().to_string();
        for open in [b'(', b'[', b'{'] {
            assert_eq!(tell(&[open; TEXT_MAX]), "header: its brackets nest 65536 deep, and at most 4 are read");
            assert_eq!(tell(&[open; TEXT_MAX + 1]), "header: its text has 65537 bytes, and at most 65536 are read");
        }
        // Brackets in quotes do not count.
        assert_eq!(tell(br#"['\']', [")", [')', [[['"#), "header: its brackets nest 6 deep, and at most 4 are read");
        assert!(tell(b"{'((((((('").starts_with("header: could not parse"));
        // The longest header with the deepest nesting that is accepted.
        let long = [b"{{{{'".as_slice(), &[b'a'; TEXT_MAX - 6], b"'"].concat();
        assert!(tell(&long).starts_with("header: could not parse"));
    }

    #[test]
    fn the_place_of_an_error_in_the_header_is_told_in_one_line() {
        let text = read(&bare(b"{'descr': '<f4', 'shape': (1, 2;)}")).unwrap_err().to_string();
        let expected = "minus_sign, fraction, pos_exponent, neg_exponent, or digit";
        assert_eq!(text, format!("header: could not parse Python expression: syntax error at 1:32: expected {expected}"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..80, to in any::<u8>()) {
            let _ = read(&bytes);
            let mut near = file(1, "'<f4'", "False", "(1,)", &[0; 4]);
            near[at] = to;
            let _ = read(&near);
        }

        #[test]
        fn floats_come_back(values in prop::collection::vec(any::<f32>(), 0..40)) {
            let body: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let Values::F32(back) = read(&file(2, "'<f4'", "False", &format!("({},)", values.len()), &body)).unwrap().values else {
                return Err(TestCaseError::fail("another type"));
            };
            prop_assert!(back.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()) && back.len() == values.len());
        }
    }
}
