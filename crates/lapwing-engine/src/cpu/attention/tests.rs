//! Attention at every level against f64.

use proptest::prelude::*;

use super::*;

/// Values in -1..1 from a small generator, different for each seed.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// q, k and v side by side in one buffer, as merged projections give them.
struct Case {
    shape: HeadShape,
    offsets: Vec<usize>,
    merged: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// Rows of biases by distance, their width, and the same as the kernel takes them.
    by_distance: Option<(Vec<f32>, usize, DistanceBias)>,
}

impl Case {
    fn new(shape: HeadShape, lengths: &[usize], bias: Option<f32>, gain: f32) -> Case {
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        }));
        let tokens: usize = lengths.iter().sum();
        let merged = noise(tokens * Self::width(&shape), 7).into_iter().map(|x| x * gain).collect();
        let bias = bias.map(|low| noise(tokens, 11).into_iter().map(|x| if x < 0.2 { low } else { 0.0 }).collect());
        Case { shape, offsets, merged, bias, by_distance: None }
    }

    /// With `rows` of biases for distances up to `reach`, the further ones masked out if `is_window`.
    fn with_distances(mut self, rows: usize, reach: usize, is_window: bool) -> Case {
        let width = 2 * reach + 1;
        let mut table: Vec<f32> = noise(rows * width, 5).into_iter().map(|x| 3.0 * x).collect();
        if is_window {
            table.chunks_mut(width).for_each(|row| (row[0], row[width - 1]) = (f32::NEG_INFINITY, f32::NEG_INFINITY));
        }
        let bias = DistanceBias::new(&table, width);
        self.by_distance = Some((table, width, bias));
        self
    }

    fn width(shape: &HeadShape) -> usize {
        shape.heads * shape.head_size + shape.key_heads * (shape.head_size + shape.value_size) + 3
    }

    fn attention(&self) -> Attention<'_> {
        let columns = |offset| HeadColumns { data: &self.merged, offset, stride: Self::width(&self.shape) };
        let HeadShape { heads, key_heads, head_size, .. } = self.shape;
        Attention::new(
            self.shape,
            &self.offsets,
            None,
            [columns(0), columns(heads * head_size), columns((heads + key_heads) * head_size)],
            self.bias.as_deref(),
            self.by_distance.as_ref().map(|(.., bias)| bias),
        )
        .unwrap()
    }

    fn run(&self, level: Level, sequences: Range<usize>, heads: Range<usize>) -> Vec<f32> {
        let width = self.shape.heads * self.shape.value_size + 2;
        let mut out = vec![9.0; self.offsets.last().unwrap() * width];
        let mut scratch = vec![f32::NAN; Attention::scratch_len(self.shape.head_size)];
        self.attention().run(level, sequences, heads, &mut scratch, &mut HeadColumnsMut::new(&mut out, 1, width)).unwrap();
        out
    }

    /// The result in f64; columns outside the heads stay 9.
    fn reference(&self) -> Vec<f64> {
        let HeadShape { heads, key_heads, head_size: d, value_size: e, scale, is_zero_if_masked } = self.shape;
        let (stride, width, k, v) = (Self::width(&self.shape), heads * e + 2, heads * d, (heads + key_heads) * d);
        let at = |row: usize, column: usize| f64::from(self.merged[row * stride + column]);
        let mut out = vec![9.0; self.offsets.last().unwrap() * width];
        for (s, h) in (0..self.offsets.len() - 1).flat_map(|s| (0..heads).map(move |h| (s, h))) {
            let rows = self.offsets[s]..self.offsets[s + 1];
            let own = h / (heads / key_heads);
            for i in rows.clone() {
                let score = |j: usize| {
                    let dot: f64 = (0..d).map(|c| at(i, h * d + c) * at(j, k + own * d + c)).sum();
                    // computed in f32, where a bias of -1e9 absorbs the score
                    let bias = self.bias.as_ref().map_or(0.0, |b| b[j]);
                    let by_distance = self.by_distance.as_ref().map_or(0.0, |(table, width, _)| {
                        let reach = width / 2;
                        table[h * width % table.len() + (j + reach).saturating_sub(i).min(2 * reach)]
                    });
                    f64::from(((dot * f64::from(scale)) as f32 + (bias + by_distance)).max(f32::MIN))
                };
                let scores: Vec<f64> = rows.clone().map(score).collect();
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
                for c in 0..e {
                    let mix = rows.clone().zip(&scores).map(|(j, s)| (s - most).exp() * at(j, v + own * e + c));
                    let is_masked = is_zero_if_masked && most <= f64::from(f32::MIN);
                    out[i * width + 1 + h * e + c] = if is_masked { 0.0 } else { mix.sum::<f64>() / sum };
                }
            }
        }
        out
    }
}

fn close(got: &[f32], want: &[f64]) {
    for (i, (&y, &r)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(y) - r).abs() <= 1e-5 + 1e-5 * r.abs(), "at {i}: {y}, not {r}");
    }
}

#[test]
fn every_level_and_length_agrees_with_f64() {
    for (heads, head_size, value_size) in [(1, 16, 16), (3, 32, 32), (2, 64, 64), (2, 20, 33), (1, 7, 5), (1, 128, 96)] {
        let shape = HeadShape {
            heads,
            key_heads: heads,
            head_size,
            value_size,
            scale: 1.0 / (head_size as f32).sqrt(),
            is_zero_if_masked: false,
        };
        for bias in [None, Some(-1e9), Some(f32::NEG_INFINITY)] {
            let case = Case::new(shape, &[1, 2, 7, 16, 0, 17, 31, 32, 33, 48, 64, 65, 129, 257], bias, 1.5);
            for level in Level::available() {
                close(&case.run(level, 0..14, 0..heads), &case.reference());
            }
        }
    }
}

#[test]
fn biases_by_distance_are_those_of_the_definition() {
    let shape = HeadShape { heads: 3, key_heads: 3, head_size: 20, value_size: 24, scale: 0.2, is_zero_if_masked: false };
    for (rows, reach, is_window) in [(3, 1, false), (3, 40, false), (1, 17, true), (1, 300, true), (3, 5, true)] {
        for bias in [None, Some(-1e9)] {
            let case =
                Case::new(shape, &[1, 2, 7, 16, 0, 17, 33, 65, 129, 257], bias, 1.5).with_distances(rows, reach, is_window);
            for level in Level::available() {
                close(&case.run(level, 0..10, 0..3), &case.reference());
            }
        }
    }
}

#[test]
fn queries_without_a_key_get_zeros_if_asked_for() {
    let shape = HeadShape { heads: 2, key_heads: 2, head_size: 8, value_size: 24, scale: 0.2, is_zero_if_masked: true };
    // windows of 9 keys: some have none that is not masked
    let mut case = Case::new(shape, &[5, 300], Some(f32::NEG_INFINITY), 1.0).with_distances(2, 5, true);
    let mask = |i: usize| if i < 5 || (100..150).contains(&i) { f32::NEG_INFINITY } else { 0.0 };
    case.bias = Some((0..305).map(mask).collect());
    for level in Level::available() {
        let got = case.run(level, 0..2, 0..2);
        close(&got, &case.reference());
        let zeros = got.chunks(2 * 24 + 2).filter(|row| row[1..49].iter().all(|x| *x == 0.0)).count();
        assert_eq!(zeros, 5 + 50 - 8, "{level:?}");
    }
}

#[test]
fn later_blocks_rescale_earlier_ones() {
    let shape = HeadShape { heads: 1, key_heads: 1, head_size: 32, value_size: 40, scale: 0.2, is_zero_if_masked: false };
    for slope in [0.0625, -0.0625] {
        let mut case = Case::new(shape, &[400, 129], None, 1.0);
        case.bias = Some((0..529).map(|i| (i % 400) as f32 * slope).collect());
        for level in Level::available() {
            close(&case.run(level, 0..2, 0..1), &case.reference());
        }
    }
}

#[test]
fn fully_masked_sequences_stay_finite() {
    let shape = HeadShape { heads: 2, key_heads: 2, head_size: 32, value_size: 32, scale: 0.2, is_zero_if_masked: false };
    for low in [-1e4, -1e9, -3.4e38, f32::MIN, f32::NEG_INFINITY] {
        let mut case = Case::new(shape, &[5, 300], Some(low), 1.0);
        case.bias = Some(vec![low; 305]);
        for level in Level::available() {
            assert!(case.run(level, 0..2, 0..2).iter().all(|y| y.is_finite()), "{low} at {level:?}");
        }
    }
}

#[test]
fn ranges_write_their_own_part_only() {
    let shape = HeadShape { heads: 4, key_heads: 4, head_size: 16, value_size: 24, scale: 0.25, is_zero_if_masked: false };
    let case = Case::new(shape, &[9, 40, 3], None, 1.0);
    let whole = case.run(Level::best(), 0..3, 0..4);
    let part = case.run(Level::best(), 1..2, 1..3);
    let width = 4 * 24 + 2;
    for (i, (&p, &w)) in part.iter().zip(&whole).enumerate() {
        let inside = (9..49).contains(&(i / width)) && (25..73).contains(&(i % width));
        assert_eq!(p, if inside { w } else { 9.0 }, "row {} column {}", i / width, i % width);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let case = Case::new(
        HeadShape { heads: 2, key_heads: 2, head_size: 4, value_size: 4, scale: 1.0, is_zero_if_masked: false },
        &[3, 4],
        None,
        1.0,
    );
    let (mut out, mut scratch) = (vec![0.0; 7 * 8], vec![0.0; Attention::scratch_len(case.shape.head_size)]);
    let mut run = |sequences, heads, cut: usize, stride| {
        let n = scratch.len() - cut;
        case.attention().run(Level::best(), sequences, heads, &mut scratch[..n], &mut HeadColumnsMut::new(&mut out, 0, stride))
    };
    assert_eq!(run(0..2, 0..2, 0, 8), Ok(()));
    assert!(matches!(run(0..3, 0..2, 0, 8), Err(ShapeError::Range { what: "sequences", .. })));
    assert!(matches!(run(0..2, 1..3, 0, 8), Err(ShapeError::Range { what: "heads", .. })));
    assert!(matches!(run(0..2, 0..2, 1, 8), Err(ShapeError::Length { what: "scratch", .. })));
    assert!(matches!(run(0..2, 0..2, 0, 7), Err(ShapeError::Columns { what: "out", .. })));
    assert!(matches!(run(0..2, 0..2, 0, 9), Err(ShapeError::Length { what: "out", .. })));
    let short = |offset| HeadColumns { data: &case.merged[1..], offset, stride: 27 };
    let fine = HeadColumns { data: &case.merged, offset: 0, stride: 27 };
    assert!(Attention::new(case.shape, &[0, 3, 7], None, [fine, fine, short(18)], None, None).is_ok());
    assert!(Attention::new(case.shape, &[0, 3, 7], None, [fine, fine, short(19)], None, None).is_err());
    assert!(Attention::new(case.shape, &[0, 3, 8], None, [fine, fine, fine], None, None).is_err());
    assert!(Attention::new(case.shape, &[0, 8, 7], None, [fine, fine, fine], None, None).is_err());
    let distances = DistanceBias::new(&[0.0; 9], 3);
    assert!(Attention::new(case.shape, &[0, 3, 7], None, [fine, fine, fine], None, Some(&distances)).is_err(), "of three heads");
    let shared =
        |key_heads| Attention::new(HeadShape { key_heads, ..case.shape }, &[0, 3], None, [fine, fine, fine], None, None).is_ok();
    assert!(shared(1) && !shared(0) && !shared(3), "heads are of groups");
    assert!(Attention::new(case.shape, &[], None, [fine, fine, fine], None, None).is_err());
    assert!(Attention::new(case.shape, &[0, 7], None, [fine, fine, fine], Some(&[0.0; 6]), None).is_err());
}

/// Queries of the last tokens of each context, whose keys and values lie by head, have the results that they have among all tokens.
#[test]
fn a_context_is_the_tokens_that_it_ends_with() {
    for (heads, key_heads, head_size, value_size) in [(3, 3, 16, 16), (4, 2, 20, 33), (6, 1, 64, 7)] {
        let shape = HeadShape { heads, key_heads, head_size, value_size, scale: 0.2, is_zero_if_masked: false };
        let lengths = [1, 7, 16, 33, 130, 300];
        let mut case = Case::new(shape, &lengths, Some(-1e9), 1.0);
        // causal
        let width = 2 * 400 + 1;
        let table: Vec<f32> = (0..width).map(|at| if at > 400 { f32::MIN } else { 0.0 }).collect();
        case.by_distance = Some((table.clone(), width, DistanceBias::new(&table, width)));
        let all = case.reference();
        let stride = Case::width(&shape);
        let by_head = |from: usize, size: usize| -> Vec<f32> {
            let mut of_heads = Vec::new();
            for ends in case.offsets.windows(2) {
                of_heads.extend((0..key_heads).flat_map(|h| (ends[0]..ends[1]).map(move |row| (h, row))));
            }
            let place = |(h, row): (usize, usize)| row * stride + from + h * size;
            of_heads.into_iter().map(place).flat_map(|at| case.merged[at..at + size].to_vec()).collect()
        };
        let k = by_head(heads * head_size, head_size);
        let v = by_head((heads + key_heads) * head_size, value_size);
        for new in [1, 2, 17, 40] {
            let queries: Vec<usize> = lengths.iter().map(|length| new.min(*length)).collect();
            let mut offsets = vec![0];
            queries.iter().for_each(|length| offsets.push(offsets.last().unwrap() + length));
            let rows: Vec<usize> = case.offsets[1..].iter().zip(&queries).flat_map(|(end, length)| end - length..*end).collect();
            let q: Vec<f32> =
                rows.iter().flat_map(|row| case.merged[row * stride..row * stride + heads * head_size].to_vec()).collect();
            let columns = |data, stride| HeadColumns { data, offset: 0, stride };
            let given = [
                columns(&q[..], heads * head_size),
                columns(&k[..], key_heads * head_size),
                columns(&v[..], key_heads * value_size),
            ];
            let by_distance = case.by_distance.as_ref().map(|(.., bias)| bias);
            let attention =
                Attention::new(shape, &offsets, Some(&case.offsets), given, case.bias.as_deref(), by_distance).unwrap();
            let out_width = heads * value_size;
            let want: Vec<f64> = rows.iter().flat_map(|row| all[row * (out_width + 2) + 1..][..out_width].to_vec()).collect();
            for level in Level::available() {
                let mut out = vec![9.0; rows.len() * out_width];
                let mut scratch = vec![f32::NAN; Attention::scratch_len(head_size)];
                let mut to = HeadColumnsMut::new(&mut out, 0, out_width);
                attention.run(level, 0..lengths.len(), 0..heads, &mut scratch, &mut to).unwrap();
                close(&out, &want);
            }
            let short = [given[0], columns(&k[1..], given[1].stride), given[2]];
            assert!(Attention::new(shape, &offsets, Some(&case.offsets), short, None, None).is_err(), "a key is missing");
            assert!(Attention::new(shape, &case.offsets, Some(&offsets), given, None, None).is_err(), "more queries than keys");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape_agrees(
        key_heads in 1usize..4, times in 1usize..4, head_size in 1usize..70, value_size in 1usize..70,
        lengths in prop::collection::vec(1usize..71, 1..5), masked in any::<bool>(), gain in 0.1f32..3.0,
    ) {
        let (heads, scale) = (key_heads * times, 1.0 / (head_size as f32).sqrt());
        let shape = HeadShape { heads, key_heads, head_size, value_size, scale, is_zero_if_masked: false };
        // where all keys of a sequence are masked, a score keeps the rounding of the sum: 1e-3 beside the usual -1e4, and which way it goes
        // is for the order of the dot product to say. -1e9, which absorbs all scores, is above
        let case = Case::new(shape, &lengths, masked.then_some(-16.0), gain);
        for level in Level::available() {
            close(&case.run(level, 0..lengths.len(), 0..heads), &case.reference());
        }
    }
}
