//! The demo's model: a small transformer encoder over token ids, one vector for each text, and a linear head, as an ONNX file.
//!
//! Its weights are drawn from a seed: even a random encoder separates texts with different words, so only the head is fitted
//! (`classifier.rs`). Computation: about 0.07 MFLOP for each token and layer; weights of about 0.2 MB.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::corpus::CLASSES;
use super::onnx::{AxisLength, Element, GraphBuilder};

/// Elements of a token's vector.
pub(crate) const WIDTH: usize = 64;
const HEADS: usize = 4;
/// Elements inside a feed-forward block.
const INNER: usize = 128;
const LAYERS: usize = 1;
const SEED: u64 = 7;

/// The inputs: token ids, and 1 for each token that is not padding.
pub(crate) const IDS: &str = "input_ids";
pub(crate) const MASK: &str = "attention_mask";

/// The layer that turns a text's vector into a logit for each team.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    /// `CLASSES` rows of [`WIDTH`].
    pub(crate) weights: Vec<f32>,
    pub(crate) biases: [f32; CLASSES],
}

/// The file of the encoder for token ids below `vocabulary`. With a head its output is `logits [N, 8]`, else `embedding [N, 64]`.
pub(crate) fn onnx(vocabulary: usize, head: Option<&Head>) -> Vec<u8> {
    let mut encoder = Encoder { graph: GraphBuilder::default(), random: StdRng::seed_from_u64(SEED) };
    let table = encoder.weights(&[vocabulary, WIDTH], 1.0);
    let words = encoder.graph.node("Gather", &[&table, IDS]);
    let mut hidden = encoder.normalised(&words);
    let bias = encoder.mask_bias();
    for _ in 0..LAYERS {
        let attended = encoder.attention(&hidden, &bias);
        let sum = encoder.graph.node("Add", &[&hidden, &attended]);
        hidden = encoder.normalised(&sum);
        let wide = encoder.linear(&hidden, WIDTH, INNER);
        let active = encoder.graph.node("Relu", &[&wide]);
        let narrow = encoder.linear(&active, INNER, WIDTH);
        let sum = encoder.graph.node("Add", &[&hidden, &narrow]);
        hidden = encoder.normalised(&sum);
    }
    let embedding = encoder.masked_mean(&hidden);
    let mut graph = encoder.graph;
    let (name, width) = match head {
        None => {
            graph.rename(&embedding, "embedding");
            ("embedding", WIDTH)
        }
        Some(head) => {
            let weights = graph.floats(&[CLASSES, WIDTH], &head.weights);
            let biases = graph.floats(&[CLASSES], &head.biases);
            let logits = graph.node_with_integer("Gemm", &[&embedding, &weights, &biases], "transB", 1);
            graph.rename(&logits, "logits");
            ("logits", CLASSES)
        }
    };
    let axes = [AxisLength::Named("batch"), AxisLength::Named("sequence")];
    let inputs = [(IDS, Element::Int64, &axes[..]), (MASK, Element::Int64, &axes[..])];
    let output = [AxisLength::Named("batch"), AxisLength::Fixed(width)];
    graph.finish("tickets", &inputs, &[(name, Element::Float32, &output[..])])
}

struct Encoder {
    graph: GraphBuilder,
    random: StdRng,
}

impl Encoder {
    /// A constant of values around 0 with this standard deviation.
    fn weights(&mut self, dims: &[usize], deviation: f32) -> String {
        // the sum of four uniform numbers is near enough to a normal one; its standard deviation is the root of 4/12
        let mut normal = || ((0..4).map(|_| self.random.random::<f32>()).sum::<f32>() - 2.0) * 3.0_f32.sqrt() * deviation;
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| normal()).collect();
        self.graph.floats(dims, &values)
    }

    fn linear(&mut self, x: &str, from: usize, to: usize) -> String {
        let weights = self.weights(&[from, to], (from as f32).sqrt().recip());
        let biases = self.weights(&[to], 0.02);
        let product = self.graph.node("MatMul", &[x, &weights]);
        self.graph.node("Add", &[&product, &biases])
    }

    fn normalised(&mut self, x: &str) -> String {
        let scale = self.graph.floats(&[WIDTH], &[1.0; WIDTH]);
        let shift = self.graph.floats(&[WIDTH], &[0.0; WIDTH]);
        self.graph.node_with_integer("LayerNormalization", &[x, &scale, &shift], "axis", -1)
    }

    /// The bias of the scores: 0 for tokens, and so low for padding that nothing attends to it.
    fn mask_bias(&mut self) -> String {
        let (first, second) = (self.graph.integers(&[1]), self.graph.integers(&[2]));
        let mask = self.graph.node("Unsqueeze", &[MASK, &first]);
        let mask = self.graph.node("Unsqueeze", &[&mask, &second]);
        let mask = self.graph.node_with_integer("Cast", &[&mask], "to", Element::Float32 as i64);
        let (one, lowest) = (self.graph.floats(&[], &[1.0]), self.graph.floats(&[], &[f32::MIN]));
        let inverted = self.graph.node("Sub", &[&one, &mask]);
        self.graph.node("Mul", &[&inverted, &lowest])
    }

    fn attention(&mut self, x: &str, bias: &str) -> String {
        let queries = self.heads(x, &[0, 2, 1, 3]);
        let keys = self.heads(x, &[0, 2, 3, 1]);
        let values = self.heads(x, &[0, 2, 1, 3]);
        let scores = self.graph.node("MatMul", &[&queries, &keys]);
        let scale = self.graph.floats(&[], &[((WIDTH / HEADS) as f32).sqrt()]);
        let scores = self.graph.node("Div", &[&scores, &scale]);
        let scores = self.graph.node("Add", &[&scores, bias]);
        let shares = self.graph.node_with_integer("Softmax", &[&scores], "axis", -1);
        let mixed = self.graph.node("MatMul", &[&shares, &values]);
        let rows = self.graph.node_with_integers("Transpose", &[&mixed], "perm", &[0, 2, 1, 3]);
        let shape = self.graph.integers(&[0, 0, WIDTH as i64]);
        let rows = self.graph.node("Reshape", &[&rows, &shape]);
        self.linear(&rows, WIDTH, WIDTH)
    }

    fn heads(&mut self, x: &str, order: &[i64]) -> String {
        let projected = self.linear(x, WIDTH, WIDTH);
        let shape = self.graph.integers(&[0, 0, HEADS as i64, (WIDTH / HEADS) as i64]);
        let parts = self.graph.node("Reshape", &[&projected, &shape]);
        self.graph.node_with_integers("Transpose", &[&parts], "perm", order)
    }

    /// The mean over a text's tokens, without padding.
    fn masked_mean(&mut self, x: &str) -> String {
        let (last, first) = (self.graph.integers(&[-1]), self.graph.integers(&[1]));
        let mask = self.graph.node("Unsqueeze", &[MASK, &last]);
        let shape = self.graph.node("Shape", &[x]);
        let mask = self.graph.node("Expand", &[&mask, &shape]);
        let mask = self.graph.node_with_integer("Cast", &[&mask], "to", Element::Float32 as i64);
        let kept = self.graph.node("Mul", &[x, &mask]);
        let sum = self.graph.node_with_integer("ReduceSum", &[&kept, &first], "keepdims", 0);
        let count = self.graph.node_with_integer("ReduceSum", &[&mask, &first], "keepdims", 0);
        let least = self.graph.floats(&[], &[1e-9]);
        let count = self.graph.node("Clip", &[&count, &least]);
        self.graph.node("Div", &[&sum, &count])
    }
}
