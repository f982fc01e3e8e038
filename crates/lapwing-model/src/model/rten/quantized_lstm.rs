//! `DynamicQuantizeLSTM`, so that rten's integer products do not end at the limits of 16 bits, as they may on processors without VNNI:
//! sums of two products of a byte with a number of at most 64 do not reach them. Weights, less their zero points, are written as sums of
//! parts that small, and what they multiply is repeated for each part: the columns of the input, and in the recurrence the hidden units,
//! whose copies stay equal.

use super::known::Known;
use super::nodes::{Parts, whole, wholes_of};
use lapwing_onnx::messages::TensorProto;
use lapwing_onnx::messages::tensor_proto::DataType;

/// What a byte may be multiplied by.
const MOST: u16 = 64;
/// Input, output, forget and cell.
const GATES: usize = 4;

/// Weights of each direction, rows and columns of gates, less their zero points: within ±255.
struct Weights {
    directions: usize,
    rows: usize,
    columns: usize,
    values: Vec<i16>,
}

impl Weights {
    fn read(tensor: &TensorProto, zeros: Option<&TensorProto>) -> Option<Self> {
        let [directions, rows, columns] = tensor.dims[..] else { return None };
        let [directions, rows, columns] = [directions, rows, columns].map(usize::try_from);
        let (directions, rows, columns) = (directions.ok()?, rows.ok()?, columns.ok()?);
        let mut values = elements(tensor)?;
        let count = directions.checked_mul(rows)?.checked_mul(columns)?;
        if values.len() != count || count == 0 || !columns.is_multiple_of(GATES) {
            return None;
        }
        if let Some(zeros) = zeros {
            let zeros = elements(zeros)?;
            // one for each direction, or for each of its columns
            let each = zeros
                .len()
                .checked_div(directions)
                .filter(|each| zeros.len() == directions * each && [1, columns].contains(each))?;
            for (place, value) in values.iter_mut().enumerate() {
                *value -= zeros[place / (rows * columns) * each + place % columns % each];
            }
        }
        Some(Self { directions, rows, columns, values })
    }

    /// How many parts are small enough.
    fn parts(&self) -> usize {
        let most = self.values.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
        usize::from(most.div_ceil(MOST).max(1))
    }

    /// The parts' rows one after the other, and each gate's columns `copies` times.
    fn in_parts(&self, copies: usize) -> TensorProto {
        let parts = self.parts();
        let units = self.columns / GATES;
        let mut data = Vec::with_capacity(self.values.len() * parts * copies);
        for direction in self.values.chunks_exact(self.rows * self.columns) {
            for part in 0..parts as i16 {
                for gate in direction.chunks_exact(units) {
                    for _ in 0..copies {
                        // Hermite's identity: these floors sum up to the value
                        data.extend(gate.iter().map(|value| (value + part).div_euclid(parts as i16) as u8));
                    }
                }
            }
        }
        TensorProto {
            data_type: DataType::Int8 as i32,
            dims: [self.directions, parts * self.rows, copies * self.columns].map(|length| length as i64).to_vec(),
            raw_data: data.into(),
            ..TensorProto::default()
        }
    }
}

/// The elements of a constant of bytes.
fn elements(tensor: &TensorProto) -> Option<Vec<i16>> {
    let is_signed = tensor.data_type == DataType::Int8 as i32;
    if !is_signed && tensor.data_type != DataType::Uint8 as i32 {
        return None;
    }
    if !tensor.int32_data.is_empty() {
        let limits = if is_signed { -128..=127 } else { 0..=255 };
        let inside = |x: &i32| limits.contains(x).then_some(*x as i16);
        return tensor.int32_data.iter().map(inside).collect();
    }
    Some(tensor.raw_data.iter().map(|byte| if is_signed { i16::from(*byte as i8) } else { i16::from(*byte) }).collect())
}

impl Parts<'_> {
    /// Adds the nodes; `None` if the weights are not constants in the file.
    pub(crate) fn lstm(&mut self, known: &Known) -> Option<()> {
        let read = |at: usize| {
            let zeros = self.input(at * 2 + 7);
            let zeros = if zeros.is_empty() { None } else { Some(known.constant_of(zeros)?) };
            Weights::read(known.constant_of(self.input(at))?, zeros)
        };
        let (input, recurrent) = (read(1)?, read(2)?);
        if input.columns != recurrent.columns || input.directions != recurrent.directions {
            return None;
        }
        let (hidden, copies) = (recurrent.columns / GATES, recurrent.parts());
        let directions = recurrent.directions;
        let per_column = [8, 10].map(|at| known.rank(self.input(at)).filter(|rank| (1..=2).contains(rank)).map(|rank| rank == 2));
        let [Some(input_per_column), Some(recurrent_per_column)] = per_column else { return None };
        let x = self.repeated(self.input(0), input.parts());
        let weights = [&input, &recurrent].map(|weights| self.stored(weights.in_parts(copies)));
        let bias = self.by_gate(self.input(3), directions, (2 * GATES, hidden), copies);
        let [h, c] = [5, 6].map(|at| self.repeated(self.input(at), copies));
        let [input_scale, recurrent_scale] = [(8, input_per_column), (10, recurrent_per_column)].map(|(at, per_column)| {
            let scale = self.input(at);
            if per_column { self.by_gate(scale, directions, (GATES, hidden), copies) } else { scale.to_owned() }
        });
        let [w, r] = &weights;
        let reads = [&x, w, r, &bias, "", &h, &c, "", &input_scale, "", &recurrent_scale].map(str::to_owned);
        let mut node = self.node.clone();
        node.input = reads.to_vec();
        if let Some(size) = node.attribute.iter_mut().find(|attribute| attribute.name == "hidden_size") {
            size.i = (copies * hidden) as i64;
        }
        let outputs = std::mem::take(&mut node.output);
        node.output = outputs.iter().map(|name| if name.is_empty() { String::new() } else { format!("{name}/copies") }).collect();
        let made = node.output.clone();
        self.nodes.push(node);
        let (first, end) = (self.stored(wholes_of(&[0])), self.stored(wholes_of(&[hidden as i64])));
        for (at, (copied, output)) in made.iter().zip(&outputs).enumerate().filter(|(_, (_, output))| !output.is_empty()) {
            // the first output has an axis more; rten's optimiser takes the last of each for a quarter of the input's columns
            let last = if at == 0 { 3 } else { 2 };
            let mut shape = vec![0; last];
            shape.push((copies * hidden) as i64);
            let (shape, axis) = (self.stored(wholes_of(&shape)), self.stored(wholes_of(&[last as i64])));
            let copied = self.made("Reshape", &[copied, &shape], &[]);
            let slice = self.made("Slice", &[&copied, &first, &end, &axis], &[]);
            if let Some(node) = self.nodes.last_mut().filter(|node| node.output == [slice]) {
                node.output = vec![output.clone()];
            }
        }
        Some(())
    }

    /// A tensor several times along its last axis.
    fn repeated(&mut self, name: &str, times: usize) -> String {
        if name.is_empty() || times == 1 {
            return name.to_owned();
        }
        self.made("Concat", &vec![name; times], &[whole("axis", -1)])
    }

    /// A row of each direction's gates, each gate's units several times.
    fn by_gate(&mut self, name: &str, directions: usize, (gates, units): (usize, usize), times: usize) -> String {
        if name.is_empty() || times == 1 {
            return name.to_owned();
        }
        let [directions, gates, units] = [directions, gates, units].map(|length| length as i64);
        let apart = self.stored(wholes_of(&[directions, gates, units]));
        let apart = self.made("Reshape", &[name, &apart], &[]);
        let repeated = self.repeated(&apart, times);
        let row = self.stored(wholes_of(&[directions, gates * units * times as i64]));
        self.made("Reshape", &[&repeated, &row], &[])
    }
}
