//! Pictures decoded to rows of RGB, as Pillow's `Image.open(...).convert("RGB")` gives them.

use std::io::Cursor;

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// The most pixels of a picture, also of one between two steps: 96 MiB as RGB.
pub(crate) const MAX_PIXELS: usize = 32 << 20;

/// Why a picture is not what a model can be given. No message has a value of the picture but its size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// It begins neither as a JPEG nor as a PNG.
    #[error("is neither a JPEG nor a PNG")]
    Format,
    /// It cannot be decoded.
    #[error("cannot be decoded: {0}")]
    Malformed(String),
    /// It can be decoded in more than one way, or not as servers do.
    #[error("{0}, which servers decode differently")]
    Ambiguous(&'static str),
    /// It has too many pixels, or would have.
    #[error("has {width}×{height} pixels, more than {max_pixels}")]
    TooLarge {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
        /// The most pixels of the picture.
        max_pixels: usize,
    },
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Pixels in a row.
    pub(crate) width: usize,
    /// Rows.
    pub(crate) height: usize,
    /// Red, green and blue of each pixel, row by row.
    pub(crate) rgb: Vec<u8>,
}

impl Picture {
    /// Decodes a JPEG or PNG of at most this many pixels, which are never more than [`MAX_PIXELS`].
    ///
    /// # Errors
    ///
    /// [`ImageFault`]
    pub(crate) fn decode(bytes: &[u8], max_pixels: usize) -> Result<Self, ImageFault> {
        let decode = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            decode_png
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            decode_jpeg
        } else {
            return Err(ImageFault::Format);
        };
        // strangers' files may find what nobody has found in a decoder
        let decoded = std::panic::catch_unwind(|| decode(bytes, max_pixels));
        decoded.unwrap_or_else(|_| Err(ImageFault::Malformed("the decoder failed".to_owned())))
    }
}

/// Checks a size, before there are pixels.
pub(crate) fn check_size(width: usize, height: usize, max_pixels: usize) -> Result<usize, ImageFault> {
    let max_pixels = max_pixels.min(MAX_PIXELS);
    let pixels = width.checked_mul(height).filter(|pixels| (1..=max_pixels).contains(pixels));
    pixels.ok_or(ImageFault::TooLarge { width, height, max_pixels })
}

fn malformed(error: impl std::fmt::Display) -> ImageFault {
    ImageFault::Malformed(error.to_string().chars().take(120).collect())
}

fn decode_png(bytes: &[u8], max_pixels: usize) -> Result<Picture, ImageFault> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    // of texts and profiles beside the picture; pixels are bounded below
    decoder.set_limits(png::Limits { bytes: MAX_PIXELS * 8 });
    let header = decoder.read_header_info().map_err(malformed)?;
    let (width, height) = (header.width as usize, header.height as usize);
    let pixels = check_size(width, height, max_pixels)?;
    if header.bit_depth == png::BitDepth::Sixteen && header.color_type == png::ColorType::Grayscale {
        return Err(ImageFault::Ambiguous("has 16 bits of grey"));
    }
    let mut reader = decoder.read_info().map_err(malformed)?;
    let (color, _) = reader.output_color_type();
    let samples = color.samples();
    let mut data = vec![0; pixels * samples];
    if reader.output_buffer_size() != Some(data.len()) {
        return Err(ImageFault::Malformed("rows of an unexpected length".to_owned()));
    }
    reader.next_frame(&mut data).map_err(malformed)?;
    // transparency is left out, as Pillow's conversion to RGB does
    let rgb = match samples {
        1 | 2 => data.chunks_exact(samples).flat_map(|pixel| [pixel[0]; 3]).collect(),
        4 => data.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        _ => data,
    };
    Ok(Picture { width, height, rgb })
}

fn decode_jpeg(bytes: &[u8], max_pixels: usize) -> Result<Picture, ImageFault> {
    // a file that is cut off is an error, as Pillow has it
    let options = DecoderOptions::new_safe().set_strict_mode(true).jpeg_set_out_colorspace(ColorSpace::RGB);
    let options = options.set_max_width(usize::from(u16::MAX)).set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(malformed)?;
    let (width, height) = decoder.dimensions().ok_or_else(|| ImageFault::Malformed("no size".to_owned()))?;
    let pixels = check_size(width, height, max_pixels)?;
    if decoder.input_colorspace().is_none_or(|colors| !matches!(colors, ColorSpace::YCbCr | ColorSpace::Luma | ColorSpace::RGB)) {
        return Err(ImageFault::Ambiguous("has four colours"));
    }
    if decoder.exif().is_some_and(|exif| orientation(exif).is_some_and(|orientation| orientation != 1)) {
        return Err(ImageFault::Ambiguous("is turned by its EXIF orientation"));
    }
    let rgb = decoder.decode().map_err(malformed)?;
    if rgb.len() != pixels * 3 {
        return Err(ImageFault::Malformed("rows of an unexpected length".to_owned()));
    }
    Ok(Picture { width, height, rgb })
}

/// The orientation in EXIF data: an entry of the first directory of a TIFF; `None` if there is none.
fn orientation(exif: &[u8]) -> Option<u16> {
    let is_little = match exif.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let bytes: [u8; 2] = *exif.get(at..)?.first_chunk()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let directory: [u8; 4] = *exif.get(4..)?.first_chunk()?;
    let directory = if is_little { u32::from_le_bytes(directory) } else { u32::from_be_bytes(directory) };
    let directory = usize::try_from(directory).ok()?;
    let entries = usize::from(u16_at(directory)?);
    let entry = |index: usize| directory.checked_add(2 + index * 12);
    let found = (0..entries).filter_map(entry).find(|at| u16_at(*at) == Some(0x0112))?;
    u16_at(found.checked_add(8)?)
}
