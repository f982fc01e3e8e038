//! NumPy's `.npz` files, several arrays by name, as `numpy.savez` writes them: a zip archive whose members are stored, not compressed.
//! The crate `zip` finds the members and checks them against their checksums.

use std::io::{Cursor, Read};

use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

use super::npy::{self, Npy, NpyError};

/// Why an archive cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpzError {
    /// Its directory is missing, cut off, or points outside of the file.
    #[error("zip: {what}")]
    Zip {
        /// What is wrong.
        what: String,
    },
    /// A member is compressed.
    #[error("array {name}: compressed; only what numpy.savez writes is read, not savez_compressed")]
    Compressed {
        /// Its name.
        name: String,
    },
    /// A member is cut off, is encrypted, or does not match its checksum.
    #[error("array {name}: {what}")]
    Member {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A member is not a supported array.
    #[error("array {name}: {source}")]
    Array {
        /// Its name.
        name: String,
        /// Why.
        source: NpyError,
    },
}

/// Reads all arrays of a file, in the file's order, with their names without `.npy`.
///
/// # Errors
/// The file is not such an archive, or an array in it cannot be read.
pub fn read(file: &[u8]) -> Result<Vec<(String, Npy)>, NpzError> {
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let mut archive = ZipArchive::with_config(config, Cursor::new(file)).map_err(bad)?;
    if archive.has_duplicate_names() {
        return Err(bad("two members have the same name"));
    }
    // Members that share bytes could need many times the size of the file in memory.
    let mut left = file.len();
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(bad)?;
        let name = entry.name().map_err(bad)?.trim_end_matches(".npy").to_owned();
        if entry.compression() != CompressionMethod::Stored {
            return Err(NpzError::Compressed { name });
        }
        let (size, stored) = (entry.size(), entry.compressed_size());
        let fits = usize::try_from(size).ok().filter(|_| size == stored).and_then(|size| left.checked_sub(size));
        let Some(rest) = fits else {
            let what = format!("its {size} bytes, stored in {stored}, do not fit into the {left} that are left of the file");
            return Err(NpzError::Member { name, what });
        };
        let mut bytes = Vec::with_capacity(left - rest);
        let member = archive.by_index(index).map_err(std::io::Error::from).and_then(|mut member| member.read_to_end(&mut bytes));
        member.map_err(|e| NpzError::Member { name: name.clone(), what: e.to_string() })?;
        left = rest;
        let array = npy::read(&bytes).map_err(|source| NpzError::Array { name: name.clone(), source })?;
        arrays.push((name, array));
    }
    Ok(arrays)
}

fn bad(what: impl ToString) -> NpzError {
    NpzError::Zip { what: what.to_string() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::npy::Values;
    use super::super::npy::tests::file;
    use super::*;
    use proptest::prelude::*;

    const LOCAL: u32 = 0x0403_4b50;
    const CENTRAL: u32 = 0x0201_4b50;
    const END: u32 = 0x0605_4b50;

    /// An archive of members, the local headers with the extra field that `numpy.savez` writes.
    pub(crate) fn archive(members: &[(&str, Vec<u8>)], method: u8) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, body) in members {
            let (at, len) = (out.len() as u32, body.len() as u32);
            let names = |extra: u16| [(name.len() as u16).to_le_bytes(), extra.to_le_bytes()].concat();
            let mut sum = flate2::Crc::new();
            sum.update(body);
            let dated = [[0; 4], sum.sum().to_le_bytes()].concat();
            out.extend([LOCAL.to_le_bytes().as_slice(), &[45, 0, 0, 0, method, 0], &dated, &[0xff; 8], &names(20)].concat());
            out.extend([name.as_bytes(), &[0; 20], body].concat());
            directory.extend([CENTRAL.to_le_bytes().as_slice(), &[45, 3, 45, 0, 0, 0, method, 0], &dated].concat());
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
        assert_eq!(tell(b""), "zip: invalid Zip archive: Could not find EOCD");
        assert!(tell(&archive(&two(), 8)).starts_with("array input_ids: compressed"));
        let bad = archive(&[("a.npy", b"text".to_vec())], 0);
        assert_eq!(tell(&bad), "array a: header: not a .npy file");
        let whole = archive(&two(), 0);
        assert!(tell(&whole[1..]).starts_with("zip: invalid Zip archive: "));
    }

    #[test]
    fn damaged_members_are_named() {
        let tell = |file: &[u8]| read(file).unwrap_err().to_string();
        let whole = archive(&two(), 0);
        let mut damaged = whole.clone();
        // The last byte of the first member: of its number 6.
        let at = 30 + "input_ids.npy".len() + 20 + two()[0].1.len() - 1;
        damaged[at] ^= 1;
        assert_eq!(tell(&damaged), "array input_ids: Invalid checksum");
        let twice = archive(&[two().remove(0), two().remove(0)], 0);
        assert_eq!(tell(&twice), "zip: two members have the same name");
    }

    #[test]
    fn a_member_is_not_longer_than_the_file() {
        let tell = |file: &[u8]| read(file).unwrap_err().to_string();
        let whole = archive(&two(), 0);
        let directory = whole.windows(4).position(|bytes| bytes == CENTRAL.to_le_bytes()).unwrap();
        for stored in [true, false] {
            let mut long = whole.clone();
            long[directory + if stored { 20 } else { 24 }..][..4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
            let (size, taken) = if stored { (144, i32::MAX) } else { (i32::MAX, 144) };
            let what =
                format!("its {size} bytes, stored in {taken}, do not fit into the {} that are left of the file", whole.len());
            assert_eq!(tell(&long), format!("array input_ids: {what}"));
        }
        // Two members that take the same bytes, most of the file.
        let mut shared = archive(&[("a.npy", file(1, "'|b1'", "False", "(1000,)", &[1; 1000])), ("b.npy", Vec::new())], 0);
        let directory = shared.windows(4).position(|bytes| bytes == CENTRAL.to_le_bytes()).unwrap();
        let first: Vec<u8> = shared[directory..][..46].to_vec();
        shared[directory + 46 + 5..][..46].copy_from_slice(&first);
        assert!(tell(&shared).starts_with("array b: its 1128 bytes, stored in 1128, do not fit into the "));
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
