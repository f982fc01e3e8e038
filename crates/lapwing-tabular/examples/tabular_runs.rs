//! Runs a tabular model again and again for benches/tabular.py: `tabular_runs MODEL INPUTS ROWS`, where INPUTS is a file of the rows'
//! single-precision numbers. A line `N` on standard input asks for N runs; the answer is a line with the nanoseconds of each. A line
//! `outputs` asks for the outputs, in hexadecimal, one a line and an empty line behind them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, reason = "a benchmark")]

use std::io::{BufRead, Write};
use std::time::Instant;

use lapwing_onnx::tensor::{Datatype, Tensor};
use lapwing_tabular::{TabularModel, TabularState};
use prost::Message;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, inputs, rows] = &arguments[..] else { panic!("tabular_runs MODEL INPUTS ROWS") };
    let proto = lapwing_onnx::messages::ModelProto::decode(&*std::fs::read(path).expect("the model")).expect("an ONNX file");
    let model = TabularModel::from_proto(&proto).expect("a tabular model");
    let data = std::fs::read(inputs).expect("the inputs");
    let rows: usize = rows.parse().expect("a number of rows");
    let shape = vec![rows, data.len() / 4 / rows];
    let tensor = Tensor { name: model.inputs()[0].name.clone(), datatype: Datatype::Fp32, shape, data: data.into() };
    let (call, wanted, mut state) = ([tensor], vec![true; model.outputs().len()], TabularState::default());
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        if line == "outputs" {
            for tensor in model.run(&mut state, &call, &wanted).unwrap() {
                let hex: String = tensor.data.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(out, "{} {hex}", tensor.datatype.name()).unwrap();
            }
            writeln!(out).unwrap();
        } else {
            let times: Vec<String> = (0..line.parse().unwrap_or(1))
                .map(|_| {
                    let from = Instant::now();
                    std::hint::black_box(model.run(&mut state, std::hint::black_box(&call), &wanted).unwrap());
                    from.elapsed().as_nanos().to_string()
                })
                .collect();
            writeln!(out, "{}", times.join(" ")).unwrap();
        }
        out.flush().unwrap();
    }
}
