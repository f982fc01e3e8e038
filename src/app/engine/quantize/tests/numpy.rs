//! NumPy files as NumPy writes them.

/// A `.npy` file of version 1, its header padded to whole 64 bytes.
pub(crate) fn npy(descr: &str, shape: &str, body: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
    file.extend(text.as_bytes());
    file.extend(body);
    file
}

/// A `.npz` archive: members that are stored, not compressed.
pub(crate) fn npz(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, body) in members {
        let (at, size) = (out.len() as u32, body.len() as u32);
        let fields = [size.to_le_bytes(), size.to_le_bytes()].concat();
        let lengths = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
        // version, flags, method, time and date; the checksum
        let head = [[20, 0, 0, 0, 0, 0, 0, 0, 0, 0].as_slice(), &crc32(body).to_le_bytes(), &fields, &lengths].concat();
        out.extend([b"PK\x03\x04".as_slice(), &head, name.as_bytes(), body].concat());
        directory.extend([b"PK\x01\x02\x14\x00".as_slice(), &head, &[0; 10], &at.to_le_bytes(), name.as_bytes()].concat());
    }
    let (at, count) = (out.len() as u32, (members.len() as u16).to_le_bytes());
    let size = directory.len() as u32;
    out.extend(directory);
    out.extend(
        [b"PK\x05\x06\x00\x00\x00\x00".as_slice(), &count, &count, &size.to_le_bytes(), &at.to_le_bytes(), &[0, 0]].concat(),
    );
    out
}

/// The checksum of zip archives.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
