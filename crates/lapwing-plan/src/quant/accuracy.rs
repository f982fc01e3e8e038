//! Compares quantised results with single-precision results, row by row.

/// The difference of two outputs of the same model on the same rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// The largest absolute difference of two elements.
    pub max_error: f64,
    /// The mean absolute difference.
    pub mean_error: f64,
    /// The smallest cosine of two rows. It is 1 for two rows of zeros, and 0 if only one of them is zero.
    pub cosine_min: f64,
    /// The mean of the rows' cosines.
    pub cosine_mean: f64,
    /// The share of rows with the largest element at the same index (the first, if several are largest), in 0..=1.
    pub top1_agreement: f64,
}

/// Why two outputs cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccuracyError {
    /// There is nothing to compare.
    #[error("an accuracy needs at least one row of at least one element, but {rows} rows of {width} were given")]
    Empty {
        /// Rows.
        rows: usize,
        /// Elements per row.
        width: usize,
    },
    /// An output does not have the stated number of rows.
    #[error("{what} have {given} elements, but {needed} were promised")]
    Length {
        /// Which of the two.
        what: &'static str,
        /// Number of elements given.
        given: usize,
        /// Number of elements required.
        needed: usize,
    },
    /// A result is infinite or NaN.
    #[error("{what} are not finite at row {row}, element {element}")]
    NotFinite {
        /// Which of the two.
        what: &'static str,
        /// The row.
        row: usize,
        /// The element.
        element: usize,
    },
}

impl Accuracy {
    /// Compares row-major `[rows, width]` results with single-precision results. Sums are in double precision.
    ///
    /// # Errors
    /// There is nothing to compare, a length is wrong, or a value on either side is not finite.
    pub fn of(exact: &[f32], quantized: &[f32], rows: usize, width: usize) -> Result<Self, AccuracyError> {
        if rows == 0 || width == 0 {
            return Err(AccuracyError::Empty { rows, width });
        }
        check("results in single precision", exact, rows, width)?;
        check("quantised results", quantized, rows, width)?;
        let (mut max_error, mut error_sum, mut cosine_min, mut cosine_sum, mut agreed) =
            (0.0f64, 0.0, f64::INFINITY, 0.0, 0usize);
        for (a, b) in exact.chunks_exact(width).zip(quantized.chunks_exact(width)) {
            let (mut aa, mut bb, mut ab) = (0.0, 0.0, 0.0);
            for (x, y) in a.iter().zip(b) {
                let (x, y) = (f64::from(*x), f64::from(*y));
                let error = (x - y).abs();
                max_error = max_error.max(error);
                error_sum += error;
                aa += x * x;
                bb += y * y;
                ab += x * y;
            }
            let cosine = match (aa > 0.0, bb > 0.0) {
                (true, true) => (ab / (aa * bb).sqrt()).clamp(-1.0, 1.0),
                (false, false) => 1.0,
                _ => 0.0,
            };
            cosine_min = cosine_min.min(cosine);
            cosine_sum += cosine;
            agreed += usize::from(top(a) == top(b));
        }
        Ok(Self {
            max_error,
            mean_error: error_sum / exact.len() as f64,
            cosine_min,
            cosine_mean: cosine_sum / rows as f64,
            top1_agreement: agreed as f64 / rows as f64,
        })
    }
}

/// The index of the largest element, the first of several.
fn top(row: &[f32]) -> usize {
    let mut top = 0;
    let mut most = f32::NEG_INFINITY;
    for (at, value) in row.iter().enumerate() {
        if *value > most {
            (top, most) = (at, *value);
        }
    }
    top
}

fn check(what: &'static str, values: &[f32], rows: usize, width: usize) -> Result<(), AccuracyError> {
    let needed = rows.saturating_mul(width);
    if values.len() != needed {
        return Err(AccuracyError::Length { what, given: values.len(), needed });
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(AccuracyError::NotFinite { what, row: at / width, element: at % width }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_by_hand() {
        // Orthogonal rows, and rows of the same direction with twice the length.
        let got = Accuracy::of(&[1.0, 0.0, 3.0, 4.0], &[0.0, 1.0, 6.0, 8.0], 2, 2).unwrap();
        assert_eq!((got.max_error, got.mean_error), (4.0, 9.0 / 4.0));
        assert_eq!((got.cosine_min, got.cosine_mean, got.top1_agreement), (0.0, 0.5, 0.5));
    }

    #[test]
    fn zeros_and_ties() {
        let got = Accuracy::of(&[0.0, 0.0, 1.0, 1.0], &[0.0, 0.0, 1.0, 1.0], 2, 2).unwrap();
        assert_eq!((got.cosine_min, got.top1_agreement, got.max_error), (1.0, 1.0, 0.0));
        assert_eq!(Accuracy::of(&[0.0], &[0.1], 1, 1).unwrap().cosine_min, 0.0);
        assert_eq!(Accuracy::of(&[1.0], &[-1.0], 1, 1).unwrap().cosine_min, -1.0);
        assert_eq!(Accuracy::of(&[2.0, 2.0], &[2.0, 2.5], 1, 2).unwrap().top1_agreement, 0.0);
        assert!(Accuracy::of(&[1e30; 3], &[1e30; 3], 1, 3).unwrap().cosine_min > 0.999_999);
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        assert_eq!(Accuracy::of(&[], &[], 0, 4), Err(AccuracyError::Empty { rows: 0, width: 4 }));
        let short = Accuracy::of(&[1.0; 4], &[1.0; 3], 2, 2).unwrap_err();
        assert_eq!(short, AccuracyError::Length { what: "quantised results", given: 3, needed: 4 });
        let nan = Accuracy::of(&[1.0; 4], &[1.0, 1.0, f32::NAN, 1.0], 2, 2).unwrap_err();
        assert_eq!(nan.to_string(), "quantised results are not finite at row 1, element 0");
        assert!(Accuracy::of(&[f32::INFINITY], &[1.0], 1, 1).is_err());
    }

    proptest! {
        #[test]
        fn the_same_is_perfect(row in prop::collection::vec(-1e3f32..1e3, 1..30)) {
            let got = Accuracy::of(&row, &row, 1, row.len()).unwrap();
            prop_assert!(got.max_error == 0.0 && got.top1_agreement == 1.0 && got.cosine_min > 1.0 - 1e-9);
        }
    }
}
