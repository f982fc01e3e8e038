//! NumPy's `.npy` files, versions 1 and 2: C order, float32, int64, int32 or bool, little-endian. Anything else is refused by name.

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

/// Why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    /// It does not start as such a file does.
    #[error("header: not a .npy file")]
    Magic,
    /// A later version.
    #[error("header: version {major}.{minor} is not read, only 1.0 and 2.0 are")]
    Version {
        /// Its first number.
        major: u8,
        /// Its second.
        minor: u8,
    },
    /// The text that says what is in it is not as NumPy writes it.
    #[error("header: {what}")]
    Header {
        /// What is wrong.
        what: String,
    },
    /// Elements of another type.
    #[error("dtype: {descr} is not read, only <f4, <i8, <i4 and |b1 are")]
    Dtype {
        /// The type by NumPy's name.
        descr: String,
    },
    /// Columns first.
    #[error("fortran_order: only arrays in C order are read")]
    Order,
    /// The shape and the bytes do not fit one another.
    #[error("shape: {shape:?} takes {needed} bytes of elements, but there are {given}")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// Bytes that it takes, as many as fit a number.
        needed: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// A bool that is neither 0 nor 1.
    #[error("element {element}: {byte} is no bool")]
    Bool {
        /// Its place.
        element: usize,
        /// What stands there.
        byte: u8,
    },
}

/// Reads a whole file.
///
/// # Errors
/// It is not such a file, or of a type, order or shape that is not read.
pub fn read(file: &[u8]) -> Result<Npy, NpyError> {
    let (text, body) = split(file)?;
    let descr = quoted(value_of(text, "descr")?)?;
    let order = value_of(text, "fortran_order")?;
    let shape = shape_of(value_of(text, "shape")?)?;
    let width = match descr {
        "<f4" | "<i4" => 4,
        "<i8" => 8,
        "|b1" => 1,
        _ => return Err(NpyError::Dtype { descr: descr.to_owned() }),
    };
    let c_order = order.starts_with("False");
    if !c_order && !order.starts_with("True") {
        return Err(header("fortran_order is neither True nor False"));
    }
    // One axis is in both orders at once.
    if !c_order && shape.len() > 1 {
        return Err(NpyError::Order);
    }
    let needed = shape.iter().try_fold(width, |bytes: usize, axis| bytes.checked_mul(*axis)).unwrap_or(usize::MAX);
    if needed != body.len() {
        return Err(NpyError::Length { shape, needed, given: body.len() });
    }
    let values = match descr {
        "<f4" => Values::F32(elements(body, f32::from_le_bytes)),
        "<i4" => Values::I32(elements(body, i32::from_le_bytes)),
        "<i8" => Values::I64(elements(body, i64::from_le_bytes)),
        _ => Values::Bool(bools(body)?),
    };
    Ok(Npy { shape, values })
}

/// The header's text and the elements behind it.
fn split(file: &[u8]) -> Result<(&str, &[u8]), NpyError> {
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or(NpyError::Magic)?;
    let cut = || header("the file ends in it");
    let (len, rest) = match rest {
        [1, 0, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2, 0, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [1 | 2, 0, ..] | [] | [_] => return Err(cut()),
        [major, minor, ..] => return Err(NpyError::Version { major: *major, minor: *minor }),
    };
    let (text, body) = rest.split_at_checked(len).ok_or_else(cut)?;
    let text = std::str::from_utf8(text).map_err(|_| header("it is not text"))?.trim();
    let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    Ok((inside.ok_or_else(|| header("it is not a dictionary"))?, body))
}

fn header(what: &str) -> NpyError {
    NpyError::Header { what: what.to_owned() }
}

/// What follows `'key':`.
fn value_of<'a>(text: &'a str, key: &str) -> Result<&'a str, NpyError> {
    let (_, rest) = text.split_once(&format!("'{key}'")).ok_or_else(|| header(&format!("no '{key}' in it")))?;
    let rest = rest.trim_start().strip_prefix(':').ok_or_else(|| header(&format!("no value for '{key}'")))?;
    Ok(rest.trim_start())
}

/// The text between quotes at the start.
fn quoted(value: &str) -> Result<&str, NpyError> {
    let inside = value.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    // Without quotes it is a list: the fields of a record.
    Ok(inside.ok_or_else(|| NpyError::Dtype { descr: "a record".to_owned() })?.0)
}

/// `(3, 4)`, `(3,)` or `()`.
fn shape_of(value: &str) -> Result<Vec<usize>, NpyError> {
    let bad = || header("the shape is no tuple of lengths");
    let (inside, _) = value.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(bad)?;
    let inside = inside.trim().trim_end_matches(',');
    if inside.is_empty() {
        return Ok(Vec::new());
    }
    inside.split(',').map(|axis| axis.trim().parse().map_err(|_| bad())).collect()
}

fn elements<T, const N: usize>(body: &[u8], of: fn([u8; N]) -> T) -> Vec<T> {
    body.as_chunks::<N>().0.iter().map(|bytes| of(*bytes)).collect()
}

fn bools(body: &[u8]) -> Result<Vec<bool>, NpyError> {
    let of = |(element, byte): (usize, &u8)| match byte {
        0 | 1 => Ok(*byte == 1),
        byte => Err(NpyError::Bool { element, byte: *byte }),
    };
    body.iter().enumerate().map(of).collect()
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
        assert_eq!(tell(&file(1, "'<f4'", "False", "(-1,)", &[])), "header: the shape is no tuple of lengths");
        assert_eq!(tell(&file(1, "'<f4'", "0", "(1,)", &[])), "header: fortran_order is neither True nor False");
        assert_eq!(tell(&file(1, "'|b1'", "False", "(2,)", &[1, 2])), "element 1: 2 is no bool");
        let huge = format!("({0}, {0})", usize::MAX);
        assert!(matches!(read(&file(1, "'<f4'", "False", &huge, &[])), Err(NpyError::Length { needed: usize::MAX, .. })));
        let mut keyless = file(1, "'<f4'", "False", "(1,)", &[0; 4]);
        keyless[11 + 1] = b'x';
        assert_eq!(tell(&keyless), "header: no 'descr' in it");
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
