//! Products of 8 bits: exact where rten's own end at the limits of 16.

use prost::Message;

use super::{FLOAT, INT8, INT32, INT64, UINT8, answered, file, load, node, small};
use lapwing_onnx::messages::{ModelProto, NodeProto};
use lapwing_onnx::tensor::{Datatype, Tensor};
use lapwing_testing::onnx::{f32s, int, ints, port, word};

#[test]
fn products_of_eight_bits_are_exact_on_every_processor() {
    // the sum of two such products is beyond 16 bits
    let weights = small("b", INT8, &[4, 1], &[127, 127, -128, 127]);
    let inputs = || vec![port("x", UINT8, &[0, 4])];
    let bytes = file(17, node("MatMulInteger", &["x", "b"], vec![]), inputs(), vec![weights.clone()], INT32);
    let call =
        || vec![Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1, 4], data: vec![255, 255, 0, 255].into() }];
    assert_eq!(answered(&bytes, call()).to_f64(), [f64::from(3 * 255 * 127)]);
    let constants = vec![
        f32s("s", &[], &[0.5]),
        small("z", UINT8, &[], &[0]),
        weights,
        f32s("bs", &[], &[0.01]),
        small("bz", INT8, &[], &[0]),
        f32s("ys", &[], &[4.0]),
        small("yz", UINT8, &[], &[10]),
    ];
    let reads = ["x", "s", "z", "b", "bs", "bz", "ys", "yz"];
    let bytes = file(17, node("QLinearMatMul", &reads, vec![]), inputs(), constants, UINT8);
    // 255 · 0.5 · 127 · 0.01 · 3 / 4 + 10
    assert_eq!(answered(&bytes, call()).to_f64(), [131.0]);
}

#[test]
fn a_product_of_eight_bits_has_a_zero_point_for_each_row() {
    // as many rows as columns
    let constants = || vec![small("b", INT8, &[2, 1], &[1, 2]), small("z", UINT8, &[2], &[10, 20])];
    let inputs = || vec![port("x", UINT8, &[2, 2])];
    let call =
        || vec![Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![2, 2], data: vec![10, 11, 21, 20].into() }];
    let bytes = file(17, node("MatMulInteger", &["x", "b", "z"], vec![]), inputs(), constants(), INT32);
    assert_eq!(answered(&bytes, call()).to_f64(), [2.0, 1.0]);
    let scales =
        [f32s("s", &[2], &[1.0, 3.0]), f32s("one", &[], &[1.0]), small("bz", INT8, &[], &[0]), small("yz", UINT8, &[], &[0])];
    let reads = ["x", "s", "z", "b", "one", "bz", "one", "yz"];
    let bytes = file(17, node("QLinearMatMul", &reads, vec![]), inputs(), [&constants()[..], &scales].concat(), UINT8);
    assert_eq!(answered(&bytes, call()).to_f64(), [2.0, 3.0]);
}

#[test]
fn a_convolution_of_eight_bits_pads_with_the_zero_point() {
    let constants = vec![small("w", INT8, &[1, 2, 1, 3], &[1; 6]), small("z", UINT8, &[], &[10])];
    let ports = || vec![port("x", UINT8, &[0, 2, 1, 2])];
    let call =
        || Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1, 2, 1, 2], data: vec![20, 30, 10, 10].into() };
    for pads in [ints("pads", &[0, 1, 0, 1]), word("auto_pad", "SAME_UPPER")] {
        let bytes = file(17, node("ConvInteger", &["x", "w", "z"], vec![pads]), ports(), constants.clone(), INT32);
        // 10 and 20 beyond the zero point, and nothing beyond the ends
        assert_eq!(answered(&bytes, vec![call()]).to_f64(), [30.0, 30.0]);
    }
}

#[test]
fn a_convolution_of_eight_bits_is_the_same_in_every_row_of_a_batch() {
    let constants = vec![small("w", INT8, &[2, 1, 2, 2], &[1, 2, 3, 4, -1, 0, 0, 1]), small("z", UINT8, &[], &[10])];
    let conv = node("ConvInteger", &["x", "w", "z"], vec![]);
    let bytes = file(17, conv, vec![port("x", UINT8, &[0, 1, 3, 3])], constants, INT32);
    let row: Vec<u8> = (10..19).collect();
    let call = Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![3, 1, 3, 3], data: row.repeat(3).into() };
    let got = answered(&bytes, vec![call]).to_f64();
    assert_eq!(got, [27.0, 37.0, 57.0, 67.0, 4.0, 4.0, 4.0, 4.0].repeat(3));
}

#[test]
fn a_convolution_of_eight_bits_has_a_zero_point_for_each_filter() {
    // as many filters as a kernel is wide
    let weights = small("w", INT8, &[3, 1, 1, 3], &[1; 9]);
    let constants = vec![weights, small("z", UINT8, &[], &[10]), small("wz", INT8, &[3], &[1, 0, -1])];
    let conv = node("ConvInteger", &["x", "w", "z", "wz"], vec![ints("pads", &[0, 1, 0, 1])]);
    let bytes = file(17, conv, vec![port("x", UINT8, &[0, 1, 1, 2])], constants, INT32);
    let call = Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1, 1, 1, 2], data: vec![20, 30].into() };
    assert_eq!(answered(&bytes, vec![call]).to_f64(), [0.0, 0.0, 30.0, 30.0, 60.0, 60.0]);
}

/// Numbers as `DynamicQuantizeLinear` writes them: whole, less the zero point, and their scale.
fn quantized(numbers: &[f32]) -> (Vec<f32>, f32) {
    let (least, most) = numbers.iter().fold((0.0_f32, 0.0_f32), |(least, most), x| (least.min(*x), most.max(*x)));
    let scale = if most > least { (most - least) / 255.0 } else { 1.0 };
    let zero = (-least / scale).round_ties_even().clamp(0.0, 255.0);
    (numbers.iter().map(|x| ((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero).collect(), scale)
}

/// A row of numbers, quantized, times weights of `columns` columns less `zero`, with one scale for each column.
fn product(row: &[f32], weights: &[i32], zero: i32, scales: &[f32]) -> Vec<f32> {
    let (row, scale) = quantized(row);
    let columns = scales.len();
    let sum = |at: usize| row.iter().enumerate().map(|(inner, x)| x * (weights[inner * columns + at] - zero) as f32).sum::<f32>();
    (0..columns).map(|at| sum(at) * scale * scales[at]).collect()
}

#[test]
fn an_lstm_in_eight_bits_quantizes_what_it_multiplies() {
    const HIDDEN: usize = 2;
    // the greatest that there are, whose products with bytes do not fit 16 bits
    let own: Vec<i32> = (0..3 * 8).map(|at| if at % 3 == 1 { -127 } else { 127 - at }).collect();
    let recurrent: Vec<i32> = (0..2 * 8).map(|at| if at % 4 == 2 { -120 } else { 127 - 2 * at }).collect();
    let bias: Vec<f32> = (0..16).map(|at| 0.05 * at as f32 - 0.3).collect();
    let xs: Vec<f32> = (0..4 * 3).map(|at| (at as f32 * 0.7).sin() * 2.0).collect();
    let (h, c) = ([0.3_f32, -0.6], [0.1_f32, 0.2]);
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    // per tensor or per column, signed or with a zero point
    for (kind, zero, per_column) in [(INT8, 0, false), (INT8, 3, true), (UINT8, 128, false)] {
        let scale = |at: usize| if per_column { 0.004 + 0.001 * at as f32 } else { 0.004 };
        let scales: Vec<f32> = (0..8).map(scale).collect();
        let shifted = |values: &[i32]| -> Vec<i32> { values.iter().map(|x| if kind == UINT8 { x + 128 } else { *x }).collect() };
        let (w, r) = (shifted(&own), shifted(&recurrent));
        let columns: &[i64] = if per_column { &[1, 8] } else { &[1] };
        let count = columns.iter().product::<i64>() as usize;
        let constants = vec![
            small("w", kind, &[1, 3, 8], &w),
            small("r", kind, &[1, 2, 8], &r),
            f32s("b", &[1, 16], &bias),
            f32s("h", &[1, 1, 2], &h),
            f32s("c", &[1, 1, 2], &c),
            f32s("s", columns, &scales[..count]),
            small("z", kind, columns, &vec![zero; count]),
        ];
        let reads = ["x", "w", "r", "b", "", "h", "c", "", "s", "z", "s", "z"];
        let lstm = node("DynamicQuantizeLSTM", &reads, vec![int("hidden_size", HIDDEN as i64)]);
        let bytes =
            file(17, NodeProto { domain: "com.microsoft".into(), ..lstm }, vec![port("x", FLOAT, &[0, 1, 3])], constants, FLOAT);
        let got = answered(&bytes, vec![Tensor::f32("x", &[4, 1, 3], &xs)]);
        assert_eq!(got.shape, [4, 1, 1, 2]);

        // all rows of the input are quantized together, each state alone
        let (all, x_scale) = quantized(&xs);
        let (mut hidden, mut cell, mut want) = (h.to_vec(), c.to_vec(), Vec::new());
        for row in all.chunks(3) {
            let sum = |at: usize| row.iter().enumerate().map(|(inner, x)| x * (w[inner * 8 + at] - zero) as f32).sum::<f32>();
            let state = product(&hidden, &r, zero, &scales);
            let gate = |gate: usize, unit: usize| {
                let at = gate * HIDDEN + unit;
                sum(at) * x_scale * scales[at] + state[at] + bias[at] + bias[8 + at]
            };
            let step = |unit: usize| {
                let cell = sigmoid(gate(2, unit)) * cell[unit] + sigmoid(gate(0, unit)) * gate(3, unit).tanh();
                (cell, sigmoid(gate(1, unit)) * cell.tanh())
            };
            (cell, hidden) = (0..HIDDEN).map(step).unzip();
            want.extend_from_slice(&hidden);
        }
        for (got, want) in got.to_f32().iter().zip(&want) {
            assert!((got - want).abs() < 1e-5, "{kind} {zero} {per_column}: {got} for {want}");
        }
    }
}

#[test]
fn the_shape_that_an_lstm_in_eight_bits_makes_is_that_of_its_states() {
    // its inputs have other columns than a gate has units
    let constants =
        vec![small("w", INT8, &[1, 4, 8], &[100; 32]), small("r", INT8, &[1, 2, 8], &[1; 16]), f32s("s", &[1], &[0.01])];
    let reads = ["x", "w", "r", "", "", "", "", "", "s", "", "s", ""];
    let lstm = node("DynamicQuantizeLSTM", &reads, vec![int("hidden_size", 2)]);
    let lstm = NodeProto { domain: "com.microsoft".into(), output: vec!["states".into()], ..lstm };
    let bytes = file(17, node("Shape", &["states"], vec![]), vec![port("x", FLOAT, &[0, 1, 4])], constants, INT64);
    let mut model = ModelProto::decode(&*bytes).unwrap();
    model.graph.as_mut().unwrap().node.insert(0, lstm);
    let got = answered(&model.encode_to_vec(), vec![Tensor::f32("x", &[3, 1, 4], &[0.5; 12])]);
    assert_eq!(got.to_f64(), [3.0, 1.0, 1.0, 2.0]);
}

#[test]
fn an_lstm_in_eight_bits_that_rten_reads_otherwise_is_refused() {
    let weights = || {
        vec![
            small("w", INT8, &[1, 1, 4], &[1; 4]),
            small("r", INT8, &[1, 1, 4], &[1; 4]),
            f32s("s", &[1], &[1.0]),
            small("l", INT32, &[1], &[1]),
            f32s("p", &[1, 3], &[1.0; 3]),
        ]
    };
    let named = "node the_DynamicQuantizeLSTM (DynamicQuantizeLSTM, com.microsoft): ";
    for (lengths, peepholes, reason) in
        [("l", "", "rten ignores the lengths of sequences (sequence_lens)"), ("", "p", "rten has no peepholes")]
    {
        let reads = ["x", "w", "r", "", lengths, "", "", peepholes, "s", "", "s", ""];
        let lstm =
            NodeProto { domain: "com.microsoft".into(), ..node("DynamicQuantizeLSTM", &reads, vec![int("hidden_size", 1)]) };
        let bytes = file(17, lstm, vec![port("x", FLOAT, &[0, 1, 1])], weights(), FLOAT);
        assert_eq!(load(&bytes).unwrap_err(), format!("{named}{reason}"));
    }
}
