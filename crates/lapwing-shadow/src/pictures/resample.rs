//! Resizing as Pillow does it: each axis by a filter that is as wide as the scale asks for, in whole numbers with 22 bits of fraction, so
//! that results are Pillow's to the last bit. Columns are resized before rows, as up to Pillow 12; Pillow 13 begins with the rows where
//! that is less work, which changes some bytes by one.

use super::picture::{ImageFault, MAX_PIXELS, Picture, check_size};

/// How pixels between pixels are computed. The numbers are Pillow's, as they stand in preprocessor files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// 0.
    Nearest,
    /// 1.
    Lanczos,
    /// 2.
    Bilinear,
    /// 3.
    Bicubic,
    /// 4.
    Box,
    /// 5.
    Hamming,
}

/// Bits of fraction of a weight.
const PRECISION: u32 = 32 - 8 - 2;

impl Filter {
    /// The filter of a number in a preprocessor file.
    pub(crate) const fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Nearest,
            1 => Self::Lanczos,
            2 => Self::Bilinear,
            3 => Self::Bicubic,
            4 => Self::Box,
            5 => Self::Hamming,
            _ => return None,
        })
    }

    /// How many pixels on either side it reads, where nothing is made smaller.
    const fn support(self) -> f64 {
        match self {
            Self::Nearest | Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The weight of a pixel at this distance.
    fn weight(self, x: f64) -> f64 {
        use std::f64::consts::PI;
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) };
        let distance = x.abs();
        match self {
            Self::Nearest | Self::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Bilinear => (1.0 - distance).max(0.0),
            Self::Hamming if x == 0.0 => 1.0,
            Self::Hamming if distance >= 1.0 => 0.0,
            Self::Hamming => (distance * PI).sin() / (distance * PI) * (0.54 + 0.46 * (distance * PI).cos()),
            // a = -0.5
            Self::Bicubic if distance < 1.0 => (1.5 * distance - 2.5) * distance * distance + 1.0,
            Self::Bicubic if distance < 2.0 => -0.5 * (((distance - 5.0) * distance + 8.0) * distance - 4.0),
            Self::Bicubic => 0.0,
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

impl Picture {
    /// The picture with another size.
    ///
    /// # Errors
    ///
    /// It would have too many pixels, or has after its first axis.
    pub(crate) fn resized(self, width: usize, height: usize, filter: Filter) -> Result<Self, ImageFault> {
        check_size(width, height, MAX_PIXELS)?;
        if (self.width, self.height) == (width, height) {
            return Ok(self);
        }
        if filter == Filter::Nearest {
            return Ok(nearest(&self, width, height));
        }
        check_size(width, self.height, MAX_PIXELS)?;
        let mut picture = self;
        if picture.width != width {
            picture = horizontally(&picture, &weights(picture.width, width, filter));
        }
        if picture.height != height {
            picture = vertically(&picture, &weights(picture.height, height, filter));
        }
        Ok(picture)
    }
}

/// The pixels that one pixel of the result is made of: the first, and the weight of each.
struct Weights {
    first: usize,
    weights: Vec<i32>,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as in Pillow; sizes are at most 2^25"
)]
fn weights(from: usize, to: usize, filter: Filter) -> Vec<Weights> {
    let scale = from as f64 / to as f64;
    let filter_scale = scale.max(1.0);
    let (support, inverse) = (filter.support() * filter_scale, 1.0 / filter_scale);
    let of_pixel = |at: usize| {
        let center = (at as f64 + 0.5) * scale;
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let of: Vec<f64> = (first..end).map(|x| filter.weight((x as f64 - center + 0.5) * inverse)).collect();
        let sum: f64 = of.iter().sum();
        let fixed = |weight: &f64| {
            let exact = if sum == 0.0 { *weight } else { weight / sum } * f64::from(1_u32 << PRECISION);
            (if exact < 0.0 { exact - 0.5 } else { exact + 0.5 }) as i32
        };
        Weights { first, weights: of.iter().map(fixed).collect() }
    };
    (0..to).map(of_pixel).collect()
}

/// A sum of weighted values as a byte.
fn rounded(sum: i32) -> u8 {
    u8::try_from((sum >> PRECISION).clamp(0, 255)).unwrap_or(u8::MAX)
}

const HALF: i32 = 1 << (PRECISION - 1);

fn horizontally(picture: &Picture, weights: &[Weights]) -> Picture {
    let mut rgb = Vec::with_capacity(weights.len() * picture.height * 3);
    for row in picture.rgb.chunks_exact(picture.width * 3) {
        for Weights { first, weights } in weights {
            let mut sums = [HALF; 3];
            for (pixel, weight) in row[first * 3..].chunks_exact(3).zip(weights) {
                sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += i32::from(*value) * weight);
            }
            rgb.extend(sums.map(rounded));
        }
    }
    Picture { width: weights.len(), height: picture.height, rgb }
}

fn vertically(picture: &Picture, weights: &[Weights]) -> Picture {
    let row_bytes = picture.width * 3;
    let mut rgb = Vec::with_capacity(weights.len() * row_bytes);
    let mut sums = vec![HALF; row_bytes];
    for Weights { first, weights } in weights {
        sums.fill(HALF);
        for (row, weight) in picture.rgb[first * row_bytes..].chunks_exact(row_bytes).zip(weights) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += i32::from(*value) * weight);
        }
        rgb.extend(sums.iter().map(|sum| rounded(*sum)));
    }
    Picture { width: picture.width, height: weights.len(), rgb }
}

/// The pixel that each pixel of the result lies in.
fn nearest(picture: &Picture, width: usize, height: usize) -> Picture {
    let (columns, rows) = (places(picture.width, width), places(picture.height, height));
    let mut rgb = Vec::with_capacity(width * height * 3);
    for row in rows {
        let row = &picture.rgb[row * picture.width * 3..][..picture.width * 3];
        columns.iter().for_each(|column| rgb.extend_from_slice(&row[column * 3..][..3]));
    }
    Picture { width, height, rgb }
}

/// Pillow adds the scale up instead of multiplying it, which decides where a pixel lies on a border.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as in Pillow; sizes are at most 2^25"
)]
fn places(from: usize, to: usize) -> Vec<usize> {
    let scale = from as f64 / to as f64;
    let mut at = scale * 0.5;
    let mut place = || {
        let found = (at as usize).min(from - 1);
        at += scale;
        found
    };
    (0..to).map(|_| place()).collect()
}
