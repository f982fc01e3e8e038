//! Pictures as the tensor of one model: all steps of its preprocessor file, and the order of its axes.

use super::config::{ConfigError, Size, Steps};
use super::picture::{ImageFault, Picture};

/// How a model's input has the channels of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// Three planes: `[batch, 3, height, width]`.
    First,
    /// Beside one another: `[batch, height, width, 3]`.
    Last,
}

/// A picture as a model reads it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ImageTensor {
    /// Rows.
    pub(crate) height: usize,
    /// Columns.
    pub(crate) width: usize,
    /// Three values of each pixel, in the order of the model's axes.
    pub(crate) values: Vec<f32>,
    /// How many pixels the picture had.
    pub(crate) decoded_pixels: usize,
}

/// Turns pictures into the input of a model.
#[derive(Clone, Debug)]
pub(crate) struct ImagePreprocessor {
    steps: Steps,
    channels: Channels,
}

impl ImagePreprocessor {
    /// By a `preprocessor_config.json`, for a model with these axes.
    ///
    /// # Errors
    ///
    /// What of the file cannot be done.
    pub(crate) fn new(file: &[u8], channels: Channels) -> Result<Self, ConfigError> {
        Ok(Self { steps: Steps::parse(file)?, channels })
    }

    /// Height and width of every tensor; `None` if the picture has a say in it.
    #[must_use]
    pub(crate) fn fixed_size(&self) -> Option<(usize, usize)> {
        match (self.steps.crop, self.steps.resize) {
            (Some((width, height)), _) | (None, Some((Size::Both(width, height), _))) => Some((height, width)),
            _ => None,
        }
    }

    /// The tensor of a picture of at most this many pixels. It takes time linear in the picture's bytes and pixels.
    ///
    /// # Errors
    ///
    /// [`ImageFault`]
    pub(crate) fn tensor(&self, bytes: &[u8], max_pixels: usize) -> Result<ImageTensor, ImageFault> {
        let mut picture = Picture::decode(bytes, max_pixels)?;
        let decoded_pixels = picture.width * picture.height;
        if let Some((size, filter)) = self.steps.resize {
            let (width, height) = target(size, picture.width, picture.height);
            picture = picture.resized(width, height, filter)?;
        }
        if let Some((width, height)) = self.steps.crop {
            picture = picture.cropped(width, height)?;
        }
        Ok(ImageTensor { height: picture.height, width: picture.width, values: self.values(&picture), decoded_pixels })
    }

    /// As the libraries compute: rescaled in double precision, normalised in single precision.
    #[expect(clippy::cast_possible_truncation, reason = "rounded to single precision, as in the libraries")]
    fn values(&self, picture: &Picture) -> Vec<f32> {
        let tables: Vec<Vec<f32>> = (0..3)
            .map(|channel| {
                let of = |byte: u8| {
                    let value = f64::from(byte);
                    let value = self.steps.factor.map_or(value, |factor| value * factor) as f32;
                    let one_of = |values: &[f32]| values.get(channel).or(values.first()).copied().unwrap_or_default();
                    self.steps.normalise.as_ref().map_or(value, |(mean, std)| (value - one_of(mean)) / one_of(std))
                };
                (0..=255).map(of).collect()
            })
            .collect();
        let of = |channel: usize, pixel: &[u8]| tables[channel][usize::from(pixel[channel])];
        let pixels = picture.rgb.chunks_exact(3);
        match self.channels {
            Channels::First => {
                (0..3).flat_map(|channel| pixels.clone().map(move |pixel| (channel, pixel))).map(|(c, p)| of(c, p)).collect()
            }
            Channels::Last => pixels.flat_map(|pixel| [of(0, pixel), of(1, pixel), of(2, pixel)]).collect(),
        }
    }
}

/// Width and height of a picture after it was resized.
fn target(size: Size, width: usize, height: usize) -> (usize, usize) {
    match size {
        Size::Both(width, height) => (width, height),
        Size::Shortest(edge) => {
            let (short, long) = (width.min(height), width.max(height));
            let long = edge.saturating_mul(long) / short.max(1);
            if width <= height { (edge, long) } else { (long, edge) }
        }
    }
}

impl Picture {
    /// The middle of the picture.
    fn cropped(self, width: usize, height: usize) -> Result<Self, ImageFault> {
        if width > self.width || height > self.height {
            return Err(ImageFault::Ambiguous("is smaller than what is cut out of it"));
        }
        let (top, left) = ((self.height - height) / 2, (self.width - width) / 2);
        let rows = self.rgb.chunks_exact(self.width * 3).skip(top).take(height);
        let rgb = rows.flat_map(|row| row[left * 3..][..width * 3].to_vec()).collect();
        Ok(Self { width, height, rgb })
    }
}
