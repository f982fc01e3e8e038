//! Networks with convolutions beside the same networks by rten alone: each kind of node after each other, over one and two axes.

use ::rten::{RunOptions, Value};
use lapwing_onnx::messages::attribute_proto::AttributeType;
use lapwing_onnx::messages::{
    AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use lapwing_onnx::tensor::Tensor;
use lapwing_testing::onnx::{f32s as floats, i64s as whole, int, port, word};
use proptest::prelude::*;
use prost::Message;
use rten_tensor::{AsView, Tensor as Values};

use super::super::tests::{FLOAT, answer, file, load};
use super::divide::divide;
use super::steps::Work;
use crate::choice::Backend;
use crate::model::{Model, ModelOptions};

/// A network that is made node by node, from a seed.
struct Network {
    state: u64,
    nodes: Vec<NodeProto>,
    constants: Vec<TensorProto>,
    /// Images of the same lengths: name and channels.
    alike: Vec<(String, usize)>,
    /// Spatial axes, and their lengths in the latest image.
    axes: usize,
    lengths: Vec<usize>,
}

impl Network {
    fn new(seed: u64, axes: usize) -> Self {
        let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut network = Self { state, nodes: Vec::new(), constants: Vec::new(), alike: Vec::new(), axes, lengths: Vec::new() };
        network.lengths = (0..axes).map(|_| network.below(12) + 5).collect();
        let channels = network.below(5) + 1;
        network.alike.push(("x".to_owned(), channels));
        network
    }

    fn below(&mut self, most: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % most
    }

    fn noise(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.below(2001) as f32 / 1000.0 - 1.0).collect()
    }

    fn name(&self) -> String {
        format!("t{}", self.nodes.len() + self.constants.len())
    }

    fn constant(&mut self, dims: &[i64]) -> String {
        let (name, values) = (self.name(), self.noise(dims.iter().product::<i64>() as usize));
        self.constants.push(floats(&name, dims, &values));
        name
    }

    fn push(&mut self, kind: &str, reads: &[&str], attribute: Vec<AttributeProto>) -> String {
        let name = self.name();
        self.nodes.push(NodeProto {
            name: format!("the_{kind}_{}", self.nodes.len()),
            op_type: kind.into(),
            input: reads.iter().map(ToString::to_string).collect(),
            output: vec![name.clone()],
            attribute,
            ..Default::default()
        });
        name
    }

    /// The latest image.
    fn last(&self) -> (String, usize) {
        self.alike.last().unwrap().clone()
    }

    fn each(&mut self, most: usize) -> Vec<i64> {
        (0..self.axes).map(|_| self.below(most) as i64 + 1).collect()
    }

    fn convolution(&mut self) {
        let (x, inputs) = self.last();
        let groups = match self.below(3) {
            0 => inputs,
            1 if inputs.is_multiple_of(2) => 2,
            _ => 1,
        };
        let outputs = if groups == inputs && self.below(2) == 0 { inputs } else { groups * (self.below(9) + 1) };
        let (kernel, dilations) = (self.each(3), self.each(2));
        let is_same = self.below(4) == 0;
        let strides = if is_same { vec![1; self.axes] } else { self.each(2) };
        let pads: Vec<i64> = (0..2 * self.axes).map(|_| self.below(3) as i64).collect();
        let mut x = x;
        let mut lengths = self.lengths.clone();
        let mut attribute = vec![ints("strides", &strides), ints("dilations", &dilations), int("group", groups as i64)];
        attribute.push(ints("kernel_shape", &kernel));
        if is_same {
            attribute.push(word("auto_pad", "SAME_UPPER"));
        } else {
            attribute.push(ints("pads", &pads));
            let mut more = vec![0; 2 * self.axes];
            // a node that pads before
            if self.below(3) == 0 {
                more = (0..2 * self.axes).map(|_| self.below(3) as i64).collect();
                let (before, after) = more.split_at(self.axes);
                let all = [&[0, 0], before, &[0, 0], after].concat();
                let name = self.name();
                self.constants.push(whole(&name, &[all.len() as i64], &all));
                x = self.push("Pad", &[&x, &name], vec![word("mode", "constant")]);
            }
            for axis in 0..self.axes {
                let padding = pads[axis] + pads[self.axes + axis] + more[axis] + more[self.axes + axis];
                let extent = (kernel[axis] - 1) * dilations[axis] + 1;
                lengths[axis] = ((lengths[axis] as i64 + padding - extent) / strides[axis] + 1) as usize;
                if (self.lengths[axis] as i64) < extent {
                    return;
                }
            }
        }
        let weights = self.constant(&[&[outputs as i64, (inputs / groups) as i64], &kernel[..]].concat());
        let bias = self.constant(&[outputs as i64]);
        let reads: &[&str] = if self.below(3) == 0 { &[&x, &weights] } else { &[&x, &weights, &bias] };
        let made = self.push("Conv", reads, attribute);
        if lengths != self.lengths {
            self.alike.clear();
            self.lengths = lengths;
        }
        self.alike.push((made, outputs));
    }

    fn elementwise(&mut self) {
        let (x, channels) = self.last();
        let ones = vec![1; self.axes];
        let row = [&[channels as i64], &ones[..]].concat();
        let made = match self.below(10) {
            0 => self.push("Relu", &[&x], vec![]),
            1 => {
                let gate = self.push("Sigmoid", &[&x], vec![]);
                self.push("Mul", &[&x, &gate], vec![])
            }
            2 => {
                let names = [self.name(), format!("{}b", self.name())];
                self.constants.extend([floats(&names[0], &[], &[-0.4]), floats(&names[1], &[], &[0.7])]);
                self.push("Clip", &[&x, &names[0], &names[1]], vec![])
            }
            3 => self.push("HardSwish", &[&x], vec![]),
            4 => self.push("LeakyRelu", &[&x], vec![]),
            5 => {
                let slope = self.constant(&row);
                self.push("PRelu", &[&x, &slope], vec![])
            }
            6 => {
                let factor = self.constant(&row);
                self.push("Mul", &[&factor, &x], vec![])
            }
            7 => {
                let [scale, shift, mean] = [(); 3].map(|()| self.constant(&[channels as i64]));
                let variance = self.name();
                self.constants.push(floats(&variance, &[channels as i64], &vec![0.5; channels]));
                self.push("BatchNormalization", &[&x, &scale, &shift, &mean, &variance], vec![])
            }
            8 => self.push("HardSigmoid", &[&x], vec![]),
            _ => {
                let others = self.alike.iter().filter(|(_, other)| *other == channels && *other > 0);
                let others: Vec<String> = others.map(|(name, _)| name.clone()).collect();
                let at = self.below(others.len());
                self.push("Add", &[&others[at], &x], vec![])
            }
        };
        self.alike.push((made, channels));
    }

    fn other(&mut self) {
        let (x, channels) = self.last();
        match self.below(7) {
            0 => {
                // a factor for each channel, computed from all pixels
                let mean = self.push("GlobalAveragePool", &[&x], vec![]);
                let ones = vec![1; self.axes];
                let weights = self.constant(&[&[channels as i64, channels as i64], &ones[..]].concat());
                let made = self.push("Conv", &[&mean, &weights], vec![ints("kernel_shape", &ones)]);
                let gate = self.push("Sigmoid", &[&made], vec![]);
                let made = self.push("Mul", &[&x, &gate], vec![]);
                self.alike.push((made, channels));
            }
            kind @ (1 | 2) if self.lengths.iter().all(|length| *length >= 2) => {
                let (kernel, strides) = (vec![2; self.axes], self.each(2));
                let pads: Vec<i64> = (0..2 * self.axes).map(|_| self.below(2) as i64).collect();
                for axis in 0..self.axes {
                    let padded = self.lengths[axis] as i64 + pads[axis] + pads[self.axes + axis];
                    self.lengths[axis] = ((padded - 2) / strides[axis] + 1) as usize;
                }
                let attribute = vec![ints("kernel_shape", &kernel), ints("strides", &strides), ints("pads", &pads)];
                let made = self.push(if kind == 1 { "MaxPool" } else { "AveragePool" }, &[&x], attribute);
                self.alike = vec![(made, channels)];
            }
            3 => {
                let at = self.below(self.alike.len());
                let (other, more) = self.alike[at].clone();
                let made = self.push("Concat", &[&x, &other], vec![int("axis", 1)]);
                self.alike.push((made, channels + more));
            }
            4 => {
                // what rten computes between, on channels last
                let (to, back): (&[i64], &[i64]) =
                    if self.axes == 1 { (&[0, 2, 1], &[0, 2, 1]) } else { (&[0, 2, 3, 1], &[0, 3, 1, 2]) };
                let last = self.push("Transpose", &[&x], vec![ints("perm", to)]);
                let soft = self.push("Softmax", &[&last], vec![int("axis", -1)]);
                let made = self.push("Transpose", &[&soft], vec![ints("perm", back)]);
                self.alike.push((made, channels));
            }
            5 => {
                let made = self.push("Softsign", &[&x], vec![]);
                self.alike.push((made, channels));
            }
            _ => {
                let made = self.push("Identity", &[&x], vec![]);
                self.alike.push((made, channels));
            }
        }
    }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: AttributeType::Ints as i32, ints: ints.to_vec(), ..Default::default() }
}

/// A file of nodes that read `x`.
fn network(rank: usize, nodes: Vec<NodeProto>, constants: Vec<TensorProto>, outputs: &[&str]) -> Vec<u8> {
    let one = file(17, NodeProto::default(), vec![port("x", FLOAT, &vec![0; rank])], constants, FLOAT);
    let mut model = ModelProto::decode(&*one).unwrap();
    let graph: &mut GraphProto = model.graph.as_mut().unwrap();
    graph.node = nodes;
    let output = |name: &&str| ValueInfoProto { name: (*name).to_owned(), ..graph.output[0].clone() };
    graph.output = outputs.iter().map(output).collect();
    model.encode_to_vec()
}

/// What rten alone answers.
fn by_rten(bytes: &[u8], x: &Tensor, output: &str) -> Vec<f32> {
    let model = super::super::load::load(bytes.to_vec(), Vec::new(), true).unwrap().unwrap();
    let ids = [model.find_node("x").unwrap(), model.find_node(output).unwrap()];
    let x = Values::from_data(&x.shape[..], x.to_f32());
    let made = model.run(vec![(ids[0], x.view().into())], &ids[1..], Some(RunOptions::default())).unwrap();
    let Value::FloatTensor(made) = made.into_iter().next().unwrap() else { panic!("not of single precision") };
    made.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn networks_are_those_of_rten(seed: u64, axes in 1..=2usize, count in 3..=10usize, three: bool) {
        let mut made = Network::new(seed, axes);
        let (channels, lengths) = (made.alike[0].1, made.lengths.clone());
        made.convolution();
        for _ in 0..count {
            match made.below(3) {
                0 => made.convolution(),
                1 => made.elementwise(),
                _ => made.other(),
            }
        }
        // two outputs: the latest, and one on the way
        let (last, middle) = (made.last().0, made.nodes[made.nodes.len() / 2].output[0].clone());
        let outputs = if last == middle { vec![&*last] } else { vec![&*last, &*middle] };
        let shape = [&[if three { 3 } else { 1 }, channels], &lengths[..]].concat();
        let x = Tensor::f32("x", &shape, &made.noise(shape.iter().product()));
        let bytes = network(axes + 2, made.nodes.clone(), made.constants.clone(), &outputs);
        let model = load(&bytes).unwrap();
        let mut workspace = crate::model::Workspace::default();
        // again, with the memory of the first run
        for _ in 0..2 {
            let mut call = vec![x.clone()];
            model.accept(&mut call).unwrap();
            let ran = model.run(&mut workspace, &[&call]).unwrap();
            for (got, output) in ran.outputs[0].iter().zip(&outputs) {
                let (got, want) = (got.to_f32(), by_rten(&bytes, &x, output));
                prop_assert_eq!(got.len(), want.len());
                let most = want.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
                for (got, want) in got.iter().zip(&want) {
                    prop_assert!((got - want).abs() <= 1e-4 * most, "{} is not {}: {:#?}", got, want, made.nodes);
                }
            }
        }
    }
}

fn weights(name: &str, dims: &[i64]) -> TensorProto {
    let len = dims.iter().product::<i64>();
    floats(name, dims, &(0..len).map(|at| (at % 7) as f32 - 3.0).collect::<Vec<_>>())
}

fn node(kind: &str, reads: &[&str], makes: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { name: makes.to_owned(), output: vec![makes.to_owned()], ..super::super::tests::node(kind, reads, attribute) }
}

#[test]
fn what_follows_a_convolution_is_its_step() {
    let nodes = vec![
        node("Conv", &["x", "w"], "a", vec![]),
        node("Relu", &["a"], "b", vec![]),
        node("Conv", &["b", "w"], "c", vec![]),
        node("Add", &["c", "b"], "d", vec![]),
        node("Sigmoid", &["d"], "e", vec![]),
        node("Mul", &["d", "e"], "y", vec![]),
    ];
    let bytes = network(4, nodes, vec![weights("w", &[3, 3, 1, 1])], &["y"]);
    let model = ModelProto::decode(&*bytes).unwrap();
    let divided = divide(model, &[], &["x".to_owned()], &["y".to_owned()]);
    let [stage] = &divided.stages[..] else { panic!("{divided:?}") };
    assert!(stage.part.is_none() && stage.steps.len() == 2, "{stage:?}");
    assert!(
        stage.steps.iter().all(|step| matches!(&step.work, Work::Convolution { then: Some(_), .. }) && step.makes.len() == 1)
    );
    // the input, then what both convolutions make
    assert_eq!(stage.steps.iter().map(|step| step.frees.len()).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn images_whose_lengths_differ_are_repeated() {
    // the mean of all pixels by windows of a size: that it has one pixel is not known before a call
    let nodes = vec![
        node("Conv", &["x", "w"], "a", vec![ints("kernel_shape", &[1, 1])]),
        node("AveragePool", &["a"], "b", vec![ints("kernel_shape", &[4, 5]), ints("strides", &[1, 1])]),
        node("Conv", &["b", "w"], "c", vec![ints("kernel_shape", &[1, 1])]),
        node("Mul", &["a", "c"], "y", vec![]),
    ];
    let bytes = network(4, nodes, vec![weights("w", &[3, 3, 1, 1])], &["y"]);
    let x = Tensor::f32("x", &[2, 3, 4, 5], &(0..120).map(|at| (at % 11) as f32).collect::<Vec<_>>());
    let got = answer(&load(&bytes).unwrap(), vec![x.clone()]).unwrap();
    assert_eq!(got.shape, [2, 3, 4, 5]);
    let (got, wanted) = (got.to_f32(), by_rten(&bytes, &x, "y"));
    let is_close = |(got, wanted): (&f32, &f32)| (got - wanted).abs() <= 1e-5 * (1.0 + wanted.abs());
    assert!(got.len() == wanted.len() && got.iter().zip(&wanted).all(is_close), "{got:?} {wanted:?}");
}

#[test]
fn a_node_whose_input_does_not_fit_is_named() {
    let nodes = vec![node("Conv", &["x", "w"], "a", vec![]), node("Relu", &["a"], "y", vec![])];
    let model = load(&network(4, nodes, vec![weights("w", &[2, 3, 3, 3])], &["y"])).unwrap();
    let refused =
        |shape: &[usize]| answer(&model, vec![Tensor::f32("x", shape, &vec![0.0; shape.iter().product()])]).unwrap_err();
    assert_eq!(
        refused(&[1, 3, 2, 9]),
        "model: cannot run: node a (Conv, ai.onnx 17): its kernel is larger than its padded input of 2 rows and 9 columns"
    );
    assert_eq!(
        refused(&[1, 2, 9, 9]),
        "model: cannot run: node a (Conv, ai.onnx 17): its input has 2 channels, and its weights are for 3"
    );
    assert_eq!(refused(&[1, 3, 0, 9]), "x: expected shape [-1, -1, -1, -1], got [1, 3, 0, 9]");
}

#[test]
fn a_lone_depthwise_convolution_is_left_to_rten() {
    let depthwise = |reads: [&str; 2], makes| {
        let attribute = vec![ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1]), int("group", 3)];
        node("Conv", &reads, makes, attribute)
    };
    let constants = || vec![weights("w", &[3, 1, 3, 3])];
    let stages = |nodes: Vec<NodeProto>| {
        let model = ModelProto::decode(&*network(4, nodes, constants(), &["y"])).unwrap();
        divide(model, &[], &["x".to_owned()], &["y".to_owned()]).stages
    };
    let sine = |x, y| node("Sin", &[x], y, vec![]);
    let lone = stages(vec![sine("x", "a"), depthwise(["a", "w"], "b"), sine("b", "y")]);
    assert!(lone.len() == 1 && lone[0].steps.is_empty(), "{lone:?}");
    let two = stages(vec![sine("x", "a"), depthwise(["a", "w"], "b"), depthwise(["b", "w"], "c"), sine("c", "y")]);
    assert_eq!(two.iter().map(|stage| stage.steps.len()).sum::<usize>(), 2, "{two:?}");
}

#[test]
fn weights_in_files_reach_the_stages_that_have_them() {
    let nodes = || {
        let conv = |reads: &[&str], makes| node("Conv", reads, makes, vec![ints("kernel_shape", &[1, 1])]);
        let product = |x, makes| node("MatMul", &[x, "m"], makes, vec![]);
        vec![product("x", "a"), conv(&["a", "w"], "b"), product("b", "c"), conv(&["c", "w"], "d"), product("d", "y")]
    };
    let constants = || vec![weights("w", &[3, 3, 1, 1]), weights("m", &[5, 5])];
    let inside = network(4, nodes(), constants(), &["y"]);
    let mut outside = ModelProto::decode(&*inside).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let graph = outside.graph.as_mut().unwrap();
    for tensor in &mut graph.initializer {
        let bytes: Vec<u8> = std::mem::take(&mut tensor.float_data).iter().flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(folder.path().join(&tensor.name), bytes).unwrap();
        tensor.data_location = Some(1);
        tensor.external_data = vec![StringStringEntryProto { key: "location".into(), value: tensor.name.clone() }];
    }
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, outside.encode_to_vec()).unwrap();
    let options = ModelOptions { backend: Backend::Rten, ..ModelOptions::default() };
    let outside = Model::read(&path, &options).unwrap();
    let x = Tensor::f32("x", &[1, 3, 4, 5], &(0..60).map(|at| (at % 11) as f32).collect::<Vec<_>>());
    let got = answer(&outside, vec![x.clone()]).unwrap();
    assert_eq!(got.to_f32(), answer(&load(&inside).unwrap(), vec![x]).unwrap().to_f32());
}
