//! Whether a library's file is whole: the loader maps what the file's head says, and a process that touches what is not there is ended.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What is read of the file: the head, and the table of segments behind it.
const HEAD_BYTES: u64 = 64 << 10;
/// A segment that is loaded.
const PT_LOAD: u32 = 1;

/// Checks that a file has every segment that it says it has. A name for the loader, a file that cannot be read, and one of another form are
/// left to the loader.
///
/// # Errors
///
/// How many bytes there should be, and how many there are.
pub(crate) fn complete(path: &Path) -> Result<(), String> {
    // a bare name is not that of a file in the current folder
    if path.components().count() < 2 {
        return Ok(());
    }
    let Ok(file) = File::open(path) else { return Ok(()) };
    let Ok(size) = file.metadata().map(|about| about.len()) else { return Ok(()) };
    let mut head = Vec::new();
    if file.take(HEAD_BYTES).read_to_end(&mut head).is_err() {
        return Ok(());
    }
    match end(&head) {
        Some(end) if end > size => Err(format!("is cut off: it has {size} of at least {end} bytes")),
        _ => Ok(()),
    }
}

/// Where the last segment that is loaded ends; `None` if the head is not that of a 64-bit little-endian ELF file, or is not whole itself.
fn end(head: &[u8]) -> Option<u64> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(at(head, 32)?)).ok()?;
    let (entry, count) = (usize::from(u16::from_le_bytes(at(head, 54)?)), usize::from(u16::from_le_bytes(at(head, 56)?)));
    let mut end = 0_u64;
    for segment in 0..count {
        let segment = table.checked_add(segment.checked_mul(entry)?)?;
        let (kind, offset, size) = (at(head, segment)?, at(head, segment.checked_add(8)?)?, at(head, segment.checked_add(32)?)?);
        if u32::from_le_bytes(kind) == PT_LOAD {
            end = end.max(u64::from_le_bytes(offset).saturating_add(u64::from_le_bytes(size)));
        }
    }
    Some(end)
}

fn at<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..from.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_off_is_told_from_a_whole_one() {
        // this test is an ELF file itself
        let own = std::env::current_exe().unwrap();
        let (bytes, folder) = (std::fs::read(&own).unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(complete(&own), Ok(()));
        let cut = folder.path().join("cut");
        std::fs::write(&cut, &bytes[..5000]).unwrap();
        assert!(complete(&cut).unwrap_err().starts_with("is cut off: it has 5000 of at least "), "{:?}", complete(&cut));
        // what is no ELF file is the loader's to refuse, whatever its bytes say
        for other in [&b""[..], b"text", b"\x7fELF", &bytes[..40], &[&b"\x7fELF\x02\x01"[..], &[0xff; 200]].concat()] {
            std::fs::write(&cut, other).unwrap();
            assert_eq!(complete(&cut), Ok(()));
        }
        assert_eq!(complete(Path::new("libonnxruntime.so")), Ok(()));
    }
}
