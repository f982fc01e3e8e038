//! A `preprocessor_config.json` as Hugging Face's libraries write it. What it asks for and is not known here is an error, and never left
//! out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::resample::Filter;

/// The greatest length of an edge, in pixels.
const MAX_EDGE: u64 = 4096;
/// Processors that read a single number as the shorter edge; `true`; and those that read it as both.
const SINGLE_SIZE: [(&str, bool); 10] = [
    ("CLIP", true),
    ("ChineseCLIP", true),
    ("LevitImageProcessor", true),
    ("LevitFeatureExtractor", true),
    ("PoolFormer", true),
    ("ResNet", true),
    ("ViT", false),
    ("DeiT", false),
    ("Beit", false),
    ("Siglip", false),
];

/// Why a preprocessor file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It is no JSON of the expected form.
    #[error("is no preprocessor_config.json: {0}")]
    Form(String),
    /// A key has a value that is not known.
    #[error("{key}: {reason}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// To what size a picture is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Width and height.
    Both(usize, usize),
    /// The shorter edge; the longer one keeps the proportion.
    Shortest(usize),
}

/// What is done to a picture, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    pub(crate) resize: Option<(Size, Filter)>,
    /// Width and height of what is cut out of the middle.
    pub(crate) crop: Option<(usize, usize)>,
    pub(crate) factor: Option<f64>,
    /// Of each channel: what is taken off, and what the rest is divided by.
    pub(crate) normalise: Option<(Vec<f32>, Vec<f32>)>,
}

#[derive(Deserialize)]
struct File {
    image_processor_type: Option<String>,
    feature_extractor_type: Option<String>,
    do_resize: Option<bool>,
    size: Option<Value>,
    resample: Option<u64>,
    do_center_crop: Option<bool>,
    crop_size: Option<Value>,
    crop_pct: Option<Value>,
    do_rescale: Option<bool>,
    rescale_factor: Option<f64>,
    do_normalize: Option<bool>,
    image_mean: Option<Vec<f32>>,
    image_std: Option<Vec<f32>>,
    do_convert_rgb: Option<bool>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

fn fault(key: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Key { key: key.to_owned(), reason: reason.into() }
}

impl Steps {
    /// Reads a file.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let file: File = serde_json::from_slice(text).map_err(|error| ConfigError::Form(error.to_string()))?;
        let is_asked = |(key, value): &(&String, &Value)| {
            (key.starts_with("do_") || *key == "rescale_offset") && **value == Value::Bool(true)
        };
        if let Some((key, _)) = file.others.iter().find(is_asked) {
            return Err(fault(key, "is a step that is not known"));
        }
        if file.crop_pct.as_ref().is_some_and(|share| !share.is_null()) {
            return Err(fault("crop_pct", "is not known; write size and crop_size in pixels"));
        }
        let _ = file.do_convert_rgb;
        let processor = file.image_processor_type.as_deref().or(file.feature_extractor_type.as_deref()).unwrap_or_default();
        let resize = match file.do_resize {
            Some(true) => {
                let filter = file.resample.and_then(Filter::of_number);
                let filter = filter.ok_or_else(|| fault("resample", "must be 0 to 5, as Pillow numbers its filters"))?;
                Some((size(file.size.as_ref(), processor)?, filter))
            }
            _ => None,
        };
        let crop = match file.do_center_crop {
            Some(true) => match size(file.crop_size.as_ref().filter(|size| !size.is_null()).or(file.size.as_ref()), "ViT") {
                Ok(Size::Both(width, height)) => Some((width, height)),
                _ => return Err(fault("crop_size", "must be a number of pixels, or height and width")),
            },
            _ => None,
        };
        // the libraries' defaults are to rescale and normalise, by older files that do not say so too
        let factor = file.do_rescale.unwrap_or(true).then(|| file.rescale_factor.unwrap_or(1.0 / 255.0));
        let normalise = match (file.do_normalize, file.image_mean, file.image_std) {
            (Some(true), Some(mean), Some(std)) => Some(normalisation(mean, std)?),
            (Some(true), _, _) => return Err(fault("image_mean", "and image_std are required where do_normalize is true")),
            (None, Some(_), _) => return Err(fault("do_normalize", "must be true or false where there is an image_mean")),
            _ => None,
        };
        Ok(Self { resize, crop, factor, normalise })
    }
}

fn normalisation(mean: Vec<f32>, std: Vec<f32>) -> Result<(Vec<f32>, Vec<f32>), ConfigError> {
    if mean.len() != std.len() || !matches!(mean.len(), 1 | 3) {
        return Err(fault("image_mean", "and image_std must have a number for each of 3 channels, or for one of grey"));
    }
    if mean.iter().chain(&std).any(|x| !x.is_finite()) || std.contains(&0.0) {
        return Err(fault("image_std", "must have finite numbers other than 0"));
    }
    Ok((mean, std))
}

/// A size: a number, `{"height", "width"}` or `{"shortest_edge"}`.
fn size(value: Option<&Value>, processor: &str) -> Result<Size, ConfigError> {
    let edge = |value: &Value| {
        let pixels =
            value.as_u64().filter(|pixels| (1..=MAX_EDGE).contains(pixels)).and_then(|pixels| usize::try_from(pixels).ok());
        pixels.ok_or_else(|| fault("size", format!("must be 1 to {MAX_EDGE} pixels")))
    };
    let value = value.ok_or_else(|| fault("size", "is required where do_resize is true"))?;
    match value {
        Value::Number(_) => match SINGLE_SIZE.iter().find(|(name, _)| processor.starts_with(name)) {
            Some((_, true)) => Ok(Size::Shortest(edge(value)?)),
            Some((_, false)) => edge(value).map(|edge| Size::Both(edge, edge)),
            None => Err(fault(
                "size",
                "is a single number, whose meaning is the processor's; write height and width, or shortest_edge",
            )),
        },
        Value::Object(keys) => {
            let names: Vec<&str> = keys.keys().map(String::as_str).collect();
            match names[..] {
                ["height", "width"] => Ok(Size::Both(edge(&keys["width"])?, edge(&keys["height"])?)),
                ["shortest_edge"] => Ok(Size::Shortest(edge(&keys["shortest_edge"])?)),
                _ => Err(fault("size", "must have height and width, or shortest_edge, and nothing else")),
            }
        }
        _ => Err(fault("size", "must be a number of pixels, height and width, or shortest_edge")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: &Value) -> Result<Steps, String> {
        Steps::parse(value.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_files_of_the_libraries_are_read() {
        // of google/vit-base-patch16-224, openai/clip-vit-base-patch32, facebook/deit-base-distilled-patch16-224
        let vit = json!({
            "do_normalize": true, "do_rescale": true, "do_resize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
            "image_processor_type": "ViTImageProcessor", "resample": 2, "rescale_factor": 0.003_921_568_627_450_98,
            "size": {"height": 224, "width": 224},
        });
        let steps = parse(&vit).unwrap();
        assert_eq!((steps.resize, steps.crop), (Some((Size::Both(224, 224), Filter::Bilinear)), None));
        assert_eq!(steps.normalise, Some((vec![0.5; 3], vec![0.5; 3])));
        let clip = json!({
            "crop_size": 224, "do_center_crop": true, "do_normalize": true, "do_resize": true, "resample": 3, "size": 224,
            "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28],
        });
        let steps = parse(&clip).unwrap();
        assert_eq!((steps.resize, steps.crop), (Some((Size::Shortest(224), Filter::Bicubic)), Some((224, 224))));
        assert_eq!(steps.factor, Some(1.0 / 255.0));
        let plain = parse(&json!({"do_resize": false, "do_rescale": false, "do_normalize": false, "do_pad": false})).unwrap();
        assert_eq!(plain, Steps { resize: None, crop: None, factor: None, normalise: None });
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_key() {
        let resized = |size: Value| json!({"do_resize": true, "resample": 2, "size": size});
        for (value, expected) in [
            (json!({"do_pad": true}), "do_pad: is a step that is not known"),
            (json!({"rescale_offset": true}), "rescale_offset: is a step"),
            (json!({"crop_pct": 0.875}), "crop_pct: is not known"),
            (json!({"do_resize": true, "size": {"height": 1, "width": 1}}), "resample: must be 0 to 5"),
            (json!({"do_resize": true, "resample": 9, "size": 1}), "resample: must be"),
            (json!({"do_resize": true, "resample": 2}), "size: is required"),
            (resized(json!(224)), "size: is a single number"),
            (resized(json!({"height": 100_000, "width": 1})), "size: must be 1 to 4096"),
            (resized(json!({"height": 0, "width": 1})), "size: must be 1 to 4096"),
            (resized(json!({"shortest_edge": 224, "longest_edge": 500})), "size: must have height and width"),
            (resized(json!("224")), "size: must be a number"),
            (json!({"do_center_crop": true, "crop_size": {"shortest_edge": 3}}), "crop_size: must be"),
            (json!({"do_normalize": true}), "image_mean: and image_std are required"),
            (json!({"image_mean": [0.5]}), "do_normalize: must be"),
            (json!({"do_normalize": true, "image_mean": [0.5], "image_std": [0.5, 0.5]}), "image_mean: and image_std must have"),
            (json!({"do_normalize": true, "image_mean": [0.5], "image_std": [0.0]}), "image_std: must have finite"),
            (json!([]), "is no preprocessor_config.json"),
        ] {
            let said = parse(&value).unwrap_err();
            assert!(said.starts_with(expected), "{value}: {said}");
        }
    }
}
