//! `LSTM` and `GRU` whose rows have lengths (`sequence_lens`), which rten ignores: every row runs to its end, and what comes behind its
//! length is taken out. A direction against time reads each row's own elements in the reverse order, and so do its states.

use super::known::{Known, integer, text};
use super::nodes::{Nodes, Opset, Parts, made, real_of, whole, whole_of, wholes, wholes_of};
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{AttributeProto, NodeProto};

/// Where a recurrence has the lengths of its rows.
pub(crate) const LENGTHS: usize = 4;

/// The nodes that stand for the node.
///
/// # Errors
///
/// What it asks for that is not written here.
pub(crate) fn nodes(node: &NodeProto, known: &Known, opset: Opset) -> Result<Nodes, &'static str> {
    let output = |at: usize| node.output.get(at).map_or("", String::as_str);
    if !output(2).is_empty() {
        return Err("rten ignores the lengths of sequences (sequence_lens), on which the last state of its cells depends");
    }
    let directions: &[bool] = match text(node, "direction").unwrap_or("forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        _ => return Err("its direction is none of ONNX's"),
    };
    let recurrent = node.input.get(2).and_then(|name| known.constant_of(name));
    let hidden = integer(node, "hidden_size").or_else(|| recurrent?.dims.get(2).copied());
    let hidden =
        hidden.ok_or("rten ignores the lengths of sequences (sequence_lens), and the file does not say its hidden_size")?;
    let mut rows = Rows::of(node, hidden, opset);
    let (mut all, mut last) = (Vec::new(), Vec::new());
    for (at, is_reverse) in directions.iter().enumerate() {
        let states = rows.states(at, directions.len(), *is_reverse);
        if !output(0).is_empty() {
            all.push(rows.inside(&states, *is_reverse));
        }
        if !output(1).is_empty() {
            last.push(rows.last(&states));
        }
    }
    for (at, part, states, axis) in
        [(0, "", all, 1), (1, "last", last, 0)].into_iter().filter(|(_, _, states, _)| !states.is_empty())
    {
        let reads: Vec<&str> = states.iter().map(String::as_str).collect();
        let attribute = vec![whole("axis", axis)];
        rows.parts.nodes.push(NodeProto { attribute, ..made("Concat", node, part, &reads, output(at)) });
    }
    Ok(rows.parts.nodes)
}

struct Rows<'a> {
    parts: Parts<'a>,
    hidden: i64,
    opset: Opset,
    /// Of each step and row, whether it is before the row's end, and whether it is its last.
    is_inside: String,
    is_last: String,
    zero: String,
}

impl<'a> Rows<'a> {
    fn of(node: &'a NodeProto, hidden: i64, opset: Opset) -> Self {
        let mut parts = Parts::of(node);
        let [none, one] = [0, 1].map(|number| parts.stored(whole_of(number)));
        let shape = parts.made("Shape", &[parts.input(0)], &[]);
        let steps = parts.made("Gather", &[&shape, &none], &[]);
        let steps = parts.made("Range", &[&none, &steps, &one], &[]);
        let by_step = parts.stored(wholes_of(&[-1, 1, 1, 1]));
        let steps = parts.made("Reshape", &[&steps, &by_step], &[]);
        let lengths = parts.made("Cast", &[parts.input(LENGTHS)], &[whole("to", DataType::Int64 as i64)]);
        let by_row = parts.stored(wholes_of(&[1, 1, -1, 1]));
        let lengths = parts.made("Reshape", &[&lengths, &by_row], &[]);
        let is_inside = parts.made("Less", &[&steps, &lengths], &[]);
        let last = parts.made("Sub", &[&lengths, &one], &[]);
        let is_last = parts.made("Equal", &[&steps, &last], &[]);
        let zero = parts.stored(real_of(0.0));
        Self { parts, hidden, opset, is_inside, is_last, zero }
    }

    /// The states of one direction in the order in which it makes them, also behind the ends of rows.
    fn states(&mut self, at: usize, directions: usize, is_reverse: bool) -> String {
        let node = self.parts.node;
        let x = self.parts.input(0);
        let x = if is_reverse { self.reversed(x) } else { x.to_owned() };
        let index = self.parts.stored(wholes_of(&[at as i64]));
        let mut reads = vec![x];
        for input in 1..node.input.len() {
            let name = self.parts.input(input);
            reads.push(match name {
                _ if input == LENGTHS => String::new(),
                "" => String::new(),
                _ if directions == 1 => name.to_owned(),
                _ => self.parts.made("Gather", &[name, &index], &[whole("axis", 0)]),
            });
        }
        let own = |attribute: &AttributeProto| {
            // a list has a part for each direction
            let part = |count: usize| at * count / directions..(at + 1) * count / directions;
            let (strings, floats) = (part(attribute.strings.len()), part(attribute.floats.len()));
            let (strings, floats) = (attribute.strings[strings].to_vec(), attribute.floats[floats].to_vec());
            AttributeProto { strings, floats, ..attribute.clone() }
        };
        let attributes: Vec<_> = node.attribute.iter().filter(|attribute| attribute.name != "direction").map(own).collect();
        let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
        self.parts.made(&node.op_type, &reads, &attributes)
    }

    /// Steps, rows and elements, with the steps of each row in the reverse order up to its length.
    fn reversed(&mut self, name: &str) -> String {
        let lengths = self.parts.input(LENGTHS);
        self.parts.made("ReverseSequence", &[name, lengths], &[whole("batch_axis", 1), whole("time_axis", 0)])
    }

    /// The states in the order of time, and zeros behind the ends of rows.
    fn inside(&mut self, states: &str, is_reverse: bool) -> String {
        let inside = self.parts.made("Where", &[&self.is_inside.clone(), states, &self.zero.clone()], &[]);
        if !is_reverse {
            return inside;
        }
        let flat = self.reshaped(&inside, &[0, -1, self.hidden]);
        let reversed = self.reversed(&flat);
        self.reshaped(&reversed, &[0, 1, -1, self.hidden])
    }

    /// Each row's state at its end.
    fn last(&mut self, states: &str) -> String {
        let last = self.parts.made("Where", &[&self.is_last.clone(), states, &self.zero.clone()], &[]);
        let keeps = whole("keepdims", 1);
        let sum = if self.opset.0 < 13 {
            self.parts.made("ReduceSum", &[&last], &[wholes("axes", &[0]), keeps])
        } else {
            let axes = self.parts.stored(wholes_of(&[0]));
            self.parts.made("ReduceSum", &[&last, &axes], &[keeps])
        };
        self.reshaped(&sum, &[1, -1, self.hidden])
    }

    fn reshaped(&mut self, name: &str, shape: &[i64]) -> String {
        let shape = self.parts.stored(wholes_of(shape));
        self.parts.made("Reshape", &[name, &shape], &[])
    }
}
