//! Pictures against what Pillow and the image processors of transformers make of them (`tests/fixtures/pictures/make_golden.py`), and pictures that
//! strangers may send.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::picture::Picture;
use super::resample::Filter;
use super::*;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../../tests/fixtures/pictures/golden.json")).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn preprocessor(config: &Value, channels: Channels) -> ImagePreprocessor {
    ImagePreprocessor::new(config.to_string().as_bytes(), channels).unwrap()
}

/// A PNG says nothing but its pixels. Decoders of JPEG may differ in the last bits.
fn tolerance(name: &str) -> u8 {
    if name.starts_with("jpeg") { 3 } else { 0 }
}

#[test]
fn pictures_of_every_kind_are_decoded_as_pillow_does() {
    for one in golden()["decoded"].as_array().unwrap() {
        let name = one["name"].as_str().unwrap();
        let picture = Picture::decode(&bytes(&one["file"]), MAX_PIXELS).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!((picture.width, picture.height), (count(&one["width"]), count(&one["height"])), "{name}");
        let expected = bytes(&one["rgb"]);
        let apart: Vec<u8> = picture.rgb.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
        let (most, sum) = (apart.iter().max().unwrap(), apart.iter().map(|x| u32::from(*x)).sum::<u32>());
        let mean = f64::from(sum) / apart.len() as f64;
        assert!(*most <= tolerance(name) && mean < 0.6 && apart.len() == expected.len(), "{name}: at most {most}, mean {mean}");
    }
}

#[test]
fn every_filter_gives_pillows_pixels() {
    let golden = golden();
    let picture = Picture::decode(&bytes(&golden["picture"]), MAX_PIXELS).unwrap();
    for one in golden["resized"].as_array().unwrap() {
        let filter = Filter::of_number(one["filter"].as_u64().unwrap()).unwrap();
        let (width, height) = (count(&one["width"]), count(&one["height"]));
        let resized = picture.clone().resized(width, height, filter).unwrap();
        assert_eq!((resized.width, resized.height), (width, height));
        assert!(resized.rgb == bytes(&one["rgb"]), "{filter:?} to {width}×{height}");
    }
}

#[test]
fn tensors_are_those_of_the_image_processors() {
    for one in golden()["tensors"].as_array().unwrap() {
        let expected: Vec<f32> = bytes(&one["values"]).as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let (height, width) = (count(&one["height"]), count(&one["width"]));
        let last = preprocessor(&one["config"], Channels::Last);
        let found = last.tensor(&bytes(&one["file"]), MAX_PIXELS).unwrap();
        assert!(last.fixed_size().is_none_or(|size| size == (height, width)));
        assert_eq!((found.height, found.width), (height, width));
        let apart = found.values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(found.values == expected, "{}: {apart}", one["config"]);
        let first = preprocessor(&one["config"], Channels::First).tensor(&bytes(&one["file"]), MAX_PIXELS).unwrap();
        let plane = height * width;
        assert!((0..plane).all(|at| (0..3).all(|channel| first.values[channel * plane + at] == expected[at * 3 + channel])));
    }
}

/// A PNG of one row that says that it is this large.
fn claims(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    drop(encoder.write_header().unwrap());
    file
}

#[test]
fn what_a_picture_claims_is_checked_before_it_is_decoded() {
    for (width, height) in [(60_000, 60_000), (1 << 30, 1), (1, 1 << 30), (8193, 4097)] {
        let file = claims(width, height);
        assert!(file.len() < 1000);
        let fault = Picture::decode(&file, MAX_PIXELS).unwrap_err();
        assert!(matches!(fault, ImageFault::TooLarge { .. }), "{fault}");
        assert!(fault.to_string().contains("more than 33554432"), "{fault}");
    }
    // what a request has left
    assert!(matches!(Picture::decode(&claims(20, 20), 399), Err(ImageFault::TooLarge { max_pixels: 399, .. })));
    // a size that is allowed, and no pixels
    assert!(matches!(Picture::decode(&claims(100, 100), MAX_PIXELS).unwrap_err(), ImageFault::Malformed(_)));
    // a JPEG of 65,500 × 65,500: the size in its frame header is replaced
    let golden = golden();
    let jpeg = golden["decoded"].as_array().unwrap().iter().find(|one| one["name"] == "jpeg 4:4:4").unwrap();
    let mut file = bytes(&jpeg["file"]);
    let frame = file.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    file[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    assert!(matches!(
        Picture::decode(&file, MAX_PIXELS).unwrap_err(),
        ImageFault::TooLarge { width: 65_500, height: 65_500, .. }
    ));
    // a strip of one column would become 224 × 7,000,000
    let strip = Picture { width: 1, height: 31_250, rgb: vec![0; 31_250 * 3] };
    assert!(matches!(strip.clone().resized(4096, 31_250, Filter::Bilinear), Err(ImageFault::TooLarge { .. })));
    assert!(matches!(strip.resized(4096, 1, Filter::Lanczos), Err(ImageFault::TooLarge { .. })), "between the axes");
}

#[test]
fn what_servers_decode_differently_is_refused() {
    let golden = golden();
    let file = |name: &str| {
        let all = golden["decoded"].as_array().unwrap();
        bytes(&all.iter().find(|one| one["name"] == name).unwrap()["file"])
    };
    assert_eq!(Picture::decode(b"GIF89a", MAX_PIXELS).unwrap_err(), ImageFault::Format);
    assert_eq!(Picture::decode(b"", MAX_PIXELS).unwrap_err(), ImageFault::Format);
    // EXIF with an orientation behind the first marker, little-endian and big-endian; 1 is upright
    let turned = |exif: &[u8]| {
        let jpeg = file("jpeg 4:4:4");
        let length = u16::try_from(exif.len() + 8).unwrap().to_be_bytes();
        [&jpeg[..2], &[0xff, 0xe1], &length, b"Exif\0\0", exif, &jpeg[2..]].concat()
    };
    let little = |value: u8| [&b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[value, 0, 0, 0, 0, 0, 0, 0]].concat();
    let big = |value: u8| [&b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01"[..], &[0, value, 0, 0, 0, 0, 0, 0]].concat();
    assert!(Picture::decode(&turned(&little(1)), MAX_PIXELS).is_ok() && Picture::decode(&turned(&big(1)), MAX_PIXELS).is_ok());
    for exif in [little(6), big(3)] {
        let fault = Picture::decode(&turned(&exif), MAX_PIXELS).unwrap_err();
        assert_eq!(fault.to_string(), "is turned by its EXIF orientation, which servers decode differently");
    }
    assert!(Picture::decode(&turned(b"II*\0\xff\xff\xff\xff"), MAX_PIXELS).is_ok(), "EXIF without an entry");
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 1, 1);
    encoder.set_depth(png::BitDepth::Sixteen);
    encoder.write_header().unwrap().write_image_data(&[1, 2]).unwrap();
    assert!(matches!(Picture::decode(&file, MAX_PIXELS), Err(ImageFault::Ambiguous(_))));
    let small = json!({"do_center_crop": true, "crop_size": 100});
    let fault = preprocessor(&small, Channels::First).tensor(&bytes(&golden["picture"]), MAX_PIXELS).unwrap_err();
    assert!(fault.to_string().starts_with("is smaller than what is cut out of it"));
}

#[test]
fn a_file_that_is_cut_or_changed_is_an_error_or_a_picture_and_never_a_panic() {
    for one in golden()["decoded"].as_array().unwrap() {
        let (name, file) = (one["name"].as_str().unwrap(), bytes(&one["file"]));
        for end in (0..file.len() * 9 / 10).step_by(11) {
            assert!(Picture::decode(&file[..end], MAX_PIXELS).is_err(), "{name}: cut at {end} of {}", file.len());
        }
        for at in (8..file.len()).step_by(5) {
            let mut changed = file.clone();
            changed[at] ^= 0x55;
            let _ = Picture::decode(&changed, MAX_PIXELS);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_error(tail in prop::collection::vec(any::<u8>(), 0..200), is_png in any::<bool>()) {
        let head: &[u8] = if is_png { b"\x89PNG\r\n\x1a\n" } else { b"\xff\xd8\xff" };
        prop_assert!(Picture::decode(&[head, &tail].concat(), MAX_PIXELS).is_err());
    }

    #[test]
    fn every_size_is_resized_to_every_other(w in 1_usize..40, h in 1_usize..40, to_w in 1_usize..60, to_h in 1_usize..60, filter in 0_u64..6) {
        let picture = Picture { width: w, height: h, rgb: vec![77; w * h * 3] };
        let resized = picture.resized(to_w, to_h, Filter::of_number(filter).unwrap()).unwrap();
        prop_assert_eq!(resized.rgb.len(), to_w * to_h * 3);
        // what is the same everywhere stays so, but for Lanczos' rounding
        prop_assert!(resized.rgb.iter().all(|x| x.abs_diff(77) <= 1));
    }
}
