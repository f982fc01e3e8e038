//! NumPy's `.npz` files, several arrays by name, as `numpy.savez` writes them: a zip archive whose members are stored, not compressed.
//! Checksums are not held against the bytes; what is cut off or points outside of the file is refused.

use super::npy::{self, Npy, NpyError};

/// Why an archive is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpzError {
    /// Its directory is missing, cut off, or points outside of the file.
    #[error("zip: {what}")]
    Zip {
        /// What is wrong.
        what: &'static str,
    },
    /// A member is compressed.
    #[error("array {name}: compressed; only what numpy.savez writes is read, not savez_compressed")]
    Compressed {
        /// Its name.
        name: String,
    },
    /// A member is no array that is read.
    #[error("array {name}: {source}")]
    Array {
        /// Its name.
        name: String,
        /// Why.
        source: NpyError,
    },
}

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;

/// Reads all arrays of a file, in their order in it, by their names without `.npy`.
///
/// # Errors
/// It is no such archive, or an array in it is not read.
pub fn read(file: &[u8]) -> Result<Vec<(String, Npy)>, NpzError> {
    // The end record has 22 bytes and a comment of up to 65,535 behind it.
    let starts = (0..=file.len().saturating_sub(22)).rev().take(65_536);
    let end = starts.into_iter().find(|at| u32_at(file, *at) == Some(END)).ok_or(bad("no directory at its end"))?;
    let count = u16_at(file, end + 10).ok_or(bad("its end is cut off"))?;
    let mut at = place(file, end + 16)?;
    let mut arrays = Vec::new();
    for _ in 0..count {
        if u32_at(file, at) != Some(CENTRAL) {
            return Err(bad("its directory is broken"));
        }
        let lengths = [28, 30, 32].map(|field| u16_at(file, at + field).map(usize::from));
        let [Some(name_len), Some(extra), Some(comment)] = lengths else { return Err(bad("its directory is cut off")) };
        let name = file.get(at + 46..at + 46 + name_len).ok_or(bad("its directory is cut off"))?;
        let name = String::from_utf8_lossy(name).trim_end_matches(".npy").to_owned();
        if u16_at(file, at + 10) != Some(0) {
            return Err(NpzError::Compressed { name });
        }
        let body = member(file, place(file, at + 42)?, place(file, at + 24)?)?;
        let array = npy::read(body).map_err(|source| NpzError::Array { name: name.clone(), source })?;
        arrays.push((name, array));
        at += 46 + name_len + extra + comment;
    }
    Ok(arrays)
}

/// The bytes of the member whose own header is at `at`.
fn member(file: &[u8], at: usize, len: usize) -> Result<&[u8], NpzError> {
    if u32_at(file, at) != Some(LOCAL) {
        return Err(bad("a member is not where the directory says"));
    }
    let lengths = [26, 28].map(|field| u16_at(file, at + field).map(usize::from));
    let [Some(name), Some(extra)] = lengths else { return Err(bad("a member is cut off")) };
    let start = at + 30 + name + extra;
    file.get(start..start.saturating_add(len)).ok_or(bad("a member is cut off"))
}

/// A length or place, 32 bits; all ones stand for one that needs 64.
fn place(file: &[u8], at: usize) -> Result<usize, NpzError> {
    match u32_at(file, at) {
        Some(u32::MAX) => Err(bad("4 GiB and more are not read")),
        Some(place) => Ok(place as usize),
        None => Err(bad("it is cut off")),
    }
}

fn bad(what: &'static str) -> NpzError {
    NpzError::Zip { what }
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    file.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::npy::Values;
    use super::super::npy::tests::file;
    use super::*;
    use proptest::prelude::*;

    /// An archive of members, the local headers with the extra field that `numpy.savez` writes.
    pub(crate) fn archive(members: &[(&str, Vec<u8>)], method: u8) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, body) in members {
            let (at, len) = (out.len() as u32, body.len() as u32);
            let names = |extra: u16| [(name.len() as u16).to_le_bytes(), extra.to_le_bytes()].concat();
            out.extend([LOCAL.to_le_bytes().as_slice(), &[45, 0, 0, 0, method, 0], &[0; 8], &[0xff; 8], &names(20)].concat());
            out.extend([name.as_bytes(), &[0; 20], body].concat());
            directory.extend([CENTRAL.to_le_bytes().as_slice(), &[45, 3, 45, 0, 0, 0, method, 0], &[0; 8]].concat());
            directory.extend([len.to_le_bytes(), len.to_le_bytes()].concat());
            directory.extend([names(0), vec![0; 10], at.to_le_bytes().to_vec(), name.as_bytes().to_vec()].concat());
        }
        let (at, count) = (out.len() as u32, (members.len() as u16).to_le_bytes());
        let len = directory.len() as u32;
        out.extend(directory);
        out.extend(
            [END.to_le_bytes().as_slice(), &[0; 4], &count, &count, &len.to_le_bytes(), &at.to_le_bytes(), &[0, 0]].concat(),
        );
        out
    }

    fn two() -> Vec<(&'static str, Vec<u8>)> {
        let ids = [5i64, 6].map(i64::to_le_bytes).concat();
        vec![("input_ids.npy", file(1, "'<i8'", "False", "(1, 2)", &ids)), ("mask.npy", file(1, "'|b1'", "False", "(1,)", &[1]))]
    }

    #[test]
    fn arrays_come_by_name() {
        let arrays = read(&archive(&two(), 0)).unwrap();
        let names: Vec<_> = arrays.iter().map(|(name, array)| (name.as_str(), array.shape.clone())).collect();
        assert_eq!(names, [("input_ids", vec![1, 2]), ("mask", vec![1])]);
        assert_eq!(arrays[0].1.values, Values::I64(vec![5, 6]));
        assert_eq!(read(&archive(&[], 0)).unwrap(), []);
    }

    #[test]
    fn what_is_not_read_is_named() {
        let tell = |file: &[u8]| read(file).unwrap_err().to_string();
        assert_eq!(tell(b""), "zip: no directory at its end");
        assert!(tell(&archive(&two(), 8)).starts_with("array input_ids: compressed"));
        let bad = archive(&[("a.npy", b"text".to_vec())], 0);
        assert_eq!(tell(&bad), "array a: header: not a .npy file");
        let whole = archive(&two(), 0);
        assert_eq!(tell(&whole[1..]), "zip: its directory is broken");
    }

    proptest! {
        #[test]
        fn a_broken_archive_is_an_answer(at in 0usize..700, to in any::<u8>(), len in 0usize..700) {
            let mut near = archive(&two(), 0);
            if let Some(byte) = near.get_mut(at) {
                *byte = to;
            }
            let _ = read(&near);
            near.truncate(len);
            let _ = read(&near);
        }
    }
}
