//! Pictures in bodies, forms and documents, and what a stranger may send instead.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, config: &Value) -> Self {
        let path = std::env::temp_dir().join(format!("lapwing-images-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("preprocessor_config.json"), config.to_string()).unwrap();
        Self(path)
    }

    fn mapping(&self, source: &str, shape: &[Option<usize>]) -> Result<RequestMapping, String> {
        let of = json!({"route": "POST /classify", "images": {"pixels": source}, "outputs": {"y": "$.scores"}});
        let ports = ModelPorts { inputs: ports(&[("pixels", "FP32", shape)]), ..scorer() };
        RequestMapping::new(&rule(of), &ports, &self.0.join("model.onnx"), LIMIT)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plain() -> Value {
    json!({"do_resize": false, "do_rescale": true, "rescale_factor": 0.5, "do_normalize": false})
}

fn png() -> Vec<u8> {
    picture(2, 1, &[255, 0, 0, 0, 0, 0])
}

/// An uncompressed PNG, written by hand.
fn picture(width: u32, height: u32, rgb: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let chunk = |kind: &[u8], body: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(kind);
        crc.update(body);
        [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], kind, body, &crc.sum().to_be_bytes()].concat()
    };
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    for row in rgb.chunks(width as usize * 3) {
        encoder.write_all(&[0]).unwrap();
        encoder.write_all(row).unwrap();
    }
    [&b"\x89PNG\r\n\x1a\n"[..], &chunk(b"IHDR", &head), &chunk(b"IDAT", &encoder.finish().unwrap()), &chunk(b"IEND", b"")]
        .concat()
}

#[test]
fn a_picture_is_the_body_a_part_or_text_of_a_document() {
    let folder = Folder::new("sources", &plain());
    let first: &[_] = &[None, Some(3), None, None];
    let planes = vec![127.5, 0.0, 0.0, 0.0, 0.0, 0.0];
    let body = folder.mapping("body", first).unwrap();
    let (head, data) = parts(&call(&body, png()).unwrap());
    assert_eq!((&head["inputs"][0]["shape"], floats(&data[0])), (&json!([1, 3, 1, 2]), planes.clone()));
    let form =
        [&b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\n"[..], &png(), b"\r\n--b--\r\n"]
            .concat();
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, "multipart/form-data; boundary=b".parse().unwrap())]);
    let part = folder.mapping("part:file", first).unwrap();
    assert_eq!(floats(&parts(&part.call(&headers, &[form.into()]).unwrap()).1[0]), planes);
    let text = STANDARD.encode(png());
    let document = folder.mapping("$.image", first).unwrap();
    for image in [json!(text), json!(format!("data:image/png;base64,{text}"))] {
        assert_eq!(floats(&parts(&call(&document, json!({"image": image}).to_string()).unwrap()).1[0]), planes);
    }
    let (head, _) = parts(&call(&document, json!({"image": [text, text]}).to_string()).unwrap());
    assert_eq!(head["inputs"][0]["shape"], json!([2, 3, 1, 2]));
    let last = folder.mapping("body", &[None, None, None, Some(3)]).unwrap();
    let (head, data) = parts(&call(&last, png()).unwrap());
    assert_eq!((&head["inputs"][0]["shape"], floats(&data[0])), (&json!([1, 1, 2, 3]), vec![127.5, 0.0, 0.0, 0.0, 0.0, 0.0]));
    for (mapping, body, reason) in [
        (&body, b"GIF89a".to_vec(), "mapping_image"),
        (&body, Vec::new(), "mapping_image"),
        (&body, png()[..40].to_vec(), "mapping_image"),
        (&part, png(), "mapping_body"),
        (&document, png(), "mapping_body"),
        (&document, br#"{"image": "no base64"}"#.to_vec(), "mapping_image"),
        (&document, br#"{"image": "data:image/png,abc"}"#.to_vec(), "mapping_image"),
        (&document, br#"{"image": []}"#.to_vec(), "mapping_shape"),
        (&document, br#"{"picture": 1}"#.to_vec(), "mapping_missing"),
    ] {
        let fault = call(mapping, body).unwrap_err();
        assert_eq!(fault.drop_reason().name(), reason, "{fault}");
    }
    let uneven = json!({"image": [text, STANDARD.encode(picture(1, 1, &[1, 2, 3]))]}).to_string();
    assert_eq!(call(&document, uneven).unwrap_err().drop_reason().name(), "mapping_shape");
}

#[test]
fn what_pictures_become_is_bounded_before_they_are_decoded() {
    let folder = Folder::new("bounds", &plain());
    let body = folder.mapping("body", &[None, Some(3), None, None]).unwrap();
    // a kilobyte that says that it has 3.6 billion pixels
    let mut huge = png();
    huge[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let mut crc = flate2::Crc::new();
    crc.update(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    let fault = call(&body, huge).unwrap_err();
    assert_eq!(fault.to_string(), "images.pixels has 60000×60000 pixels, more than 33554432");
    // a picture of a kilobyte that becomes more than the limit of tensors
    let grey = picture(600, 600, &vec![9; 600 * 600 * 3]);
    assert!(grey.len() < 4000);
    assert_eq!(call(&body, grey).unwrap_err().drop_reason().name(), "mapping_too_large");
    // many small files of many pixels have a bound together
    let resized =
        json!({"do_resize": true, "size": {"height": 1, "width": 1}, "resample": 0, "do_rescale": false, "do_normalize": false});
    let folder = Folder::new("many", &resized);
    let document = folder.mapping("$", &[None, Some(3), Some(1), Some(1)]).unwrap();
    let large = STANDARD.encode(picture(4096, 2048, &vec![0; 4096 * 2048 * 3]));
    let of = |count: usize| call(&document, json!(vec![&large; count]).to_string());
    assert_eq!(parts(&of(4).unwrap()).0["inputs"][0]["shape"], json!([4, 3, 1, 1]));
    assert!(of(5).unwrap_err().to_string().contains("more than 0"));
}

#[test]
fn an_image_mapping_that_does_not_fit_is_refused() {
    let folder = Folder::new("refused", &json!({"do_resize": true, "size": {"height": 8, "width": 8}, "resample": 2}));
    let refused = |source: &str, shape: &[Option<usize>]| folder.mapping(source, shape).unwrap_err();
    let first: &[_] = &[None, Some(3), Some(9), Some(9)];
    assert_eq!(refused("body", first), "images.pixels: the preprocessor makes 8×8 pixels, and the model takes [-1, 3, 9, 9]");
    assert!(refused("body", &[None, Some(1), Some(8), Some(8)]).contains("pictures are FP32 with 3 channels"));
    assert!(refused("file", &[None, Some(3), Some(8), Some(8)]).contains("must be body, part:NAME, or a path"));
    let gone = MappingRule {
        preprocessor: Some("gone.json".into()),
        ..rule(json!({"images": {"pixels": "body"}, "outputs": {"y": "$"}}))
    };
    let ports = ModelPorts { inputs: ports(&[("pixels", "FP32", first)]), ..scorer() };
    let error = RequestMapping::new(&gone, &ports, Path::new("m.onnx"), LIMIT).unwrap_err();
    assert!(error.starts_with("preprocessor: gone.json: cannot be read"), "{error}");
    let beside = MappingRule { preprocessor: None, ..gone };
    let error = RequestMapping::new(&beside, &ports, Path::new("m.onnx"), LIMIT).unwrap_err();
    assert!(error.starts_with("preprocessor: is required where there are images, because there is no"), "{error}");
}
