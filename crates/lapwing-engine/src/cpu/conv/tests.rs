//! Convolutions and pooling at every level against their definitions in double precision.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::cpu::gemm::tests::noise;
use crate::cpu::level::Level;

#[derive(Debug, Clone)]
struct Case {
    windows: Windows,
    size: [usize; 2],
    /// Inputs and outputs of each group, and groups.
    channels: (usize, usize, usize),
    has_bias: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let pair = |range: std::ops::RangeInclusive<usize>| (range.clone(), range).prop_map(|(a, b)| [a, b]);
    let pads = (0..=3usize, 0..=3usize, 0..=3usize, 0..=3usize).prop_map(|(a, b, c, d)| [a, b, c, d]);
    // the second: each channel alone, in numbers that leave a part of a vector
    let channels = prop_oneof![(1..=20usize, 1..=70usize, 1..=3usize), (1..=75usize).prop_map(|groups| (1, 1, groups))];
    let windows = (pair(1..=4), pair(1..=3), pair(1..=3), pads);
    (windows, pair(1..=13), channels, any::<bool>()).prop_map(|((kernel, strides, dilations, pads), size, channels, has_bias)| {
        let windows = Windows { kernel, strides, dilations, pads };
        Case { windows, size, channels, has_bias }
    })
}

/// The taps of each window: pixels of the image, row after row, `None` in the padding.
fn taps(windows: &Windows, size: [usize; 2]) -> Vec<Vec<Option<usize>>> {
    let Some([rows, columns]) = windows.count(size) else { return Vec::new() };
    let inside = |axis: usize, index: usize, tap: usize| {
        let at = (index * windows.strides[axis] + tap * windows.dilations[axis]).checked_sub(windows.pads[axis])?;
        (at < size[axis]).then_some(at)
    };
    let window = |row: usize, column: usize| {
        let of = move |y: usize, x: usize| Some(inside(0, row, y)? * size[1] + inside(1, column, x)?);
        (0..windows.kernel[0]).flat_map(|y| (0..windows.kernel[1]).map(move |x| (y, x))).map(|(y, x)| of(y, x)).collect()
    };
    (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).map(|(row, column)| window(row, column)).collect()
}

fn near(got: &[f32], want: &[f64]) -> Result<(), TestCaseError> {
    prop_assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let bound = 2e-5 * want.abs().max(1.0);
        prop_assert!((f64::from(*got) - want).abs() <= bound, "element {}: {} is not {}", at, got, want);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_convolution_is_its_definition(case in case(), part in 0.0..1.0f64) {
        let Case { windows, size, channels: (each, made, groups), has_bias } = case;
        let [inputs, outputs] = [each * groups, made * groups];
        let kernel = windows.kernel[0] * windows.kernel[1];
        let images = noise(1, 2 * size[0] * size[1] * inputs);
        let weights = noise(2, outputs * each * kernel);
        let bias = if has_bias { noise(3, outputs) } else { Vec::new() };
        let taps = taps(&windows, size);
        let of = |image: usize, pixel: &[Option<usize>], output: usize| {
            let group = output / made;
            let terms = (0..each).flat_map(|input| (0..kernel).map(move |tap| (input, tap))).filter_map(|(input, tap)| {
                let x = images[(image * size[0] * size[1] + pixel[tap]?) * inputs + group * each + input];
                Some(f64::from(x) * f64::from(weights[(output * each + input) * kernel + tap]))
            });
            terms.sum::<f64>() + bias.get(output).copied().map_or(0.0, f64::from)
        };
        let pixels = (0..2).flat_map(|image| taps.iter().map(move |pixel| (image, pixel)));
        let want: Vec<f64> = pixels.flat_map(|(image, pixel)| (0..outputs).map(move |output| (image, pixel, output)))
            .map(|(image, pixel, output)| of(image, pixel, output)).collect();
        for level in Level::available() {
            let convolution = Convolution::new(windows, [inputs, outputs], groups, &weights, &bias, level).unwrap();
            // in two calls
            let middle = (2.0 * taps.len() as f64 * part) as usize;
            let mut got = Vec::new();
            for pixels in [0..middle, middle..2 * taps.len()] {
                let (mut out, mut scratch) = (vec![f32::NAN; pixels.len() * outputs], vec![0.0; convolution.scratch_len(pixels.len())]);
                convolution.run(&images, size, pixels, &mut out, &mut scratch).unwrap();
                got.extend(out);
            }
            near(&got, &want)?;
        }
    }

    #[test]
    fn pooling_is_its_definition(case in case()) {
        let Case { mut windows, size, channels: (channels, ..), .. } = case;
        windows.dilations = [1, 1];
        (0..4).for_each(|at| windows.pads[at] = windows.pads[at].min(windows.kernel[at % 2] - 1));
        let image = noise(4, size[0] * size[1] * channels);
        let taps = taps(&windows, size);
        for kind in [PoolKind::Max, PoolKind::Mean, PoolKind::MeanWithPadding] {
            let of = |pixel: &Vec<Option<usize>>, channel: usize| {
                let inside: Vec<f64> = pixel.iter().flatten().map(|at| f64::from(image[at * channels + channel])).collect();
                match kind {
                    PoolKind::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    PoolKind::Mean => inside.iter().sum::<f64>() / inside.len() as f64,
                    PoolKind::MeanWithPadding => inside.iter().sum::<f64>() / pixel.len() as f64,
                }
            };
            let want: Vec<f64> = taps.iter().flat_map(|pixel| (0..channels).map(|c| of(pixel, c)).collect::<Vec<_>>()).collect();
            for level in Level::available() {
                let mut got = vec![f32::NAN; want.len()];
                PoolingKernel::new(windows, kind, level).unwrap().run(&image, size, channels, 0..taps.len(), &mut got).unwrap();
                near(&got, &want)?;
            }
        }
    }
}

#[test]
fn matrices_are_transposed() {
    for (rows, columns) in [(1, 1), (1, 9), (8, 8), (7, 30), (17, 16), (33, 41)] {
        let from = noise(5, 2 * rows * columns);
        for level in Level::available() {
            let mut to = vec![f32::NAN; from.len()];
            transpose(level, [rows, columns], &from, &mut to).unwrap();
            let at = |at: usize| (at / (rows * columns)) * rows * columns + at % rows * columns + at % (rows * columns) / rows;
            assert!((0..to.len()).all(|place| to[place] == from[at(place)]), "{rows} x {columns}, {level:?}");
        }
    }
    let refused =
        |from: usize, to: usize| transpose(Level::best(), [2, 3], &vec![0.0; from], &mut vec![0.0; to]).unwrap_err().to_string();
    assert_eq!(refused(7, 7), "matrices holds 7 values, 6 are needed");
    assert_eq!(refused(12, 6), "output holds 6 values, 12 are needed");
}

#[test]
fn what_no_window_can_have_is_refused() {
    let windows = Windows { kernel: [3, 3], strides: [1, 1], dilations: [1, 1], pads: [0; 4] };
    let new = |windows, groups, weights: &[f32], bias: &[f32]| {
        Convolution::new(windows, [4, 6], groups, weights, bias, Level::best()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(new(windows, 2, &[0.0; 108], &[0.0; 6]), Ok(()));
    assert_eq!(new(windows, 1, &[0.0; 108], &[]).unwrap_err(), "weights holds 108 values, 216 are needed");
    assert_eq!(new(windows, 2, &[0.0; 108], &[0.0; 5]).unwrap_err(), "bias holds 5 values, 6 are needed");
    assert_eq!(new(windows, 3, &[], &[]).unwrap_err(), "input channels is 4, which no window can have");
    assert_eq!(new(windows, 0, &[], &[]).unwrap_err(), "input channels is 4, which no window can have");
    let refused = |windows| new(windows, 2, &[0.0; 108], &[]).unwrap_err();
    assert_eq!(refused(Windows { strides: [1, 0], ..windows }), "stride is 0, which no window can have");
    assert_eq!(refused(Windows { dilations: [0, 1], ..windows }), "dilation is 0, which no window can have");
    assert_eq!(refused(Windows { kernel: [0, 3], ..windows }), "kernel is 0, which no window can have");
    assert_eq!(refused(Windows { pads: [0, 0, 5000, 0], ..windows }), "padding is 5000, which no window can have");
    let pooling = |pads| {
        PoolingKernel::new(Windows { pads, ..windows }, PoolKind::Max, Level::best()).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(pooling([2; 4]), Ok(()));
    assert_eq!(pooling([0, 3, 0, 0]).unwrap_err(), "padding is 3, which no window can have");
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let windows = Windows { kernel: [3, 3], strides: [1, 1], dilations: [1, 1], pads: [0; 4] };
    let convolution = Convolution::new(windows, [1, 2], 1, &[0.0; 18], &[], Level::best()).unwrap();
    let mut scratch = vec![0.0; convolution.scratch_len(1)];
    let mut run = |image: &[f32], size, pixels: Range<usize>, out: usize| {
        convolution.run(image, size, pixels, &mut vec![0.0; out], &mut scratch).map_err(|error| error.to_string())
    };
    assert_eq!(run(&[0.0; 9], [3, 3], 0..1, 2), Ok(()));
    assert_eq!(run(&[0.0; 8], [3, 3], 0..1, 2).unwrap_err(), "images holds 8 values, 9 are needed");
    assert_eq!(run(&[], [0, 3], 0..1, 2).unwrap_err(), "images holds 0 values, 0 are needed");
    assert_eq!(run(&[0.0; 9], [3, 3], 0..2, 4).unwrap_err(), "windows holds 1 values, 2 are needed");
    // the kernel is larger
    assert_eq!(run(&[0.0; 6], [2, 3], 0..1, 2).unwrap_err(), "windows holds 0 values, 1 are needed");
    assert_eq!(run(&[0.0; 9], [3, 3], 0..1, 3).unwrap_err(), "output holds 3 values, 2 are needed");
    assert_eq!(windows.count([2, 3]), None);
    assert_eq!(
        convolution.run(&[0.0; 9], [3, 3], 0..1, &mut [0.0; 2], &mut []).unwrap_err().to_string(),
        "scratch has 0 elements, but needs 528"
    );
}
