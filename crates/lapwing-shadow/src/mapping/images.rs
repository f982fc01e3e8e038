//! Pictures as the input of a model: where a request has them, decoded and prepared as the model's `preprocessor_config.json` says.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::call::{InputTensor, MappingFault, ModelPorts};
use super::config::MappingRule;
use super::image_source::ImageSource;
use super::multipart;
use crate::pictures::{Channels, ImagePreprocessor, MAX_PIXELS};
use lapwing_compare::outputs::{Document, TensorPort, read_texts};

/// A request before it is read.
pub(crate) struct RequestBody<'b> {
    pub(crate) headers: &'b HeaderMap,
    pub(crate) body: &'b Bytes,
    pub(crate) document: Option<&'b Document>,
}

/// An input of a model that is a picture, and where a request has it.
#[derive(Debug)]
pub(crate) struct ImageMapping {
    port: TensorPort,
    source: ImageSource,
    preprocessor: ImagePreprocessor,
    channels: Channels,
}

impl ImageMapping {
    /// The mapping of an input of the model in `file`.
    ///
    /// # Errors
    ///
    /// Why the input is none of pictures, or the preprocessor file cannot be used.
    pub(crate) fn new(rule: &MappingRule, name: &str, source: &str, model: &ModelPorts, file: &Path) -> Result<Self, String> {
        let fault = |reason: String| format!("images.{name}: {reason}");
        let port = model.inputs.iter().find(|port| port.name == name);
        let port = port.ok_or_else(|| fault("is no input of the model".to_owned()))?.clone();
        let wrong = || {
            fault(format!("pictures are FP32 with 3 channels, and the model takes {} {}", port.datatype(), port.shown_shape()))
        };
        let channels = match *port.axes() {
            [_, Some(3), _, _] => Channels::First,
            [_, _, _, Some(3)] => Channels::Last,
            _ => return Err(wrong()),
        };
        if port.datatype() != "FP32" {
            return Err(wrong());
        }
        let preprocessor = rule.preprocessor(file, channels)?;
        if let Some((height, width)) = preprocessor.fixed_size()
            && port.fit(&shape(channels, 1, height, width)).is_none()
        {
            let reason = format!("the preprocessor makes {height}×{width} pixels, and the model takes {}", port.shown_shape());
            return Err(fault(reason));
        }
        let source = ImageSource::parse(source).map_err(|reason| fault(reason.to_owned()))?;
        Ok(Self { port, source, preprocessor, channels })
    }

    /// The input.
    pub(crate) const fn port(&self) -> &TensorPort {
        &self.port
    }

    /// Whether it is in a document.
    pub(crate) const fn is_in_document(&self) -> bool {
        matches!(self.source, ImageSource::Document(_))
    }

    /// The input of a request. It takes at most `left` bytes of the `limit` of all inputs; its pictures have [`MAX_PIXELS`] together.
    pub(crate) fn tensor(&self, request: &RequestBody<'_>, left: usize, limit: usize) -> Result<InputTensor<'_>, MappingFault> {
        let input = || format!("images.{}", self.port.name);
        let files = self.files(request, limit)?;
        let (mut data, mut size, mut pixels) = (BytesMut::new(), None, MAX_PIXELS);
        for file in &files {
            let made = self.preprocessor.tensor(file, pixels);
            let made = made.map_err(|fault| MappingFault::Image { input: input(), fault })?;
            pixels -= made.decoded_pixels;
            if *size.get_or_insert((made.height, made.width)) != (made.height, made.width) {
                let found = vec![made.height, made.width];
                return Err(MappingFault::Shape { input: input(), found, wanted: "pictures of one size".to_owned() });
            }
            if data.len() + made.values.len() * 4 > left {
                return Err(MappingFault::TooLarge { input: input(), limit });
            }
            made.values.iter().for_each(|value| data.extend_from_slice(&value.to_le_bytes()));
        }
        let (height, width) = size.unwrap_or_default();
        let shape = shape(self.channels, files.len(), height, width);
        let fitted = self.port.fit(&shape).filter(|fitted| *fitted == shape && !shape.contains(&0));
        let wrong = || MappingFault::Shape { input: input(), found: shape.clone(), wanted: self.port.shown_shape() };
        Ok(InputTensor { port: &self.port, shape: fitted.ok_or_else(wrong)?, data: data.freeze() })
    }

    /// The pictures' files.
    fn files(&self, request: &RequestBody<'_>, limit: usize) -> Result<Vec<Bytes>, MappingFault> {
        let missing = |reason: String| MappingFault::Body(reason);
        match &self.source {
            ImageSource::Body => Ok(vec![request.body.clone()]),
            ImageSource::Part(name) => {
                let part = multipart::part(request.headers, request.body, name);
                Ok(vec![part.map_err(|reason| missing(format!("part {name}: {reason}")))?])
            }
            ImageSource::Document(path) => {
                let document = request.document.ok_or_else(|| missing("not JSON".to_owned()))?;
                let input = || format!("images.{}: {path}", self.port.name);
                let read = read_texts(document.root(), path);
                let (shape, texts) = read.map_err(|fault| MappingFault::of_value(input(), &fault, limit))?;
                if shape.len() > 1 {
                    return Err(MappingFault::Shape {
                        input: input(),
                        found: shape,
                        wanted: "a text, or a list of texts".to_owned(),
                    });
                }
                let fault = || MappingFault::Image { input: input(), fault: crate::pictures::ImageFault::Format };
                texts.into_iter().map(|text| decoded(text).ok_or_else(fault)).collect()
            }
        }
    }
}

/// The bytes of base64, or of a URL of data.
fn decoded(text: &str) -> Option<Bytes> {
    let text = match text.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,")?.1,
        None => text,
    };
    STANDARD.decode(text.trim()).ok().map(Bytes::from)
}

fn shape(channels: Channels, pictures: usize, height: usize, width: usize) -> Vec<usize> {
    match channels {
        Channels::First => vec![pictures, 3, height, width],
        Channels::Last => vec![pictures, height, width, 3],
    }
}
