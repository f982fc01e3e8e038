//! Nodes that compute in 8 bits, written as what they mean: dequantize, compute in single precision, quantize. rten has no `QLinear`
//! operators; its integer products end at the limits of 16 bits where the processor has no instruction that sums four of them (VNNI); and
//! its `ConvInteger` pads with 0, not with the zero point, and answers wrongly from the second row of a batch on.

use super::known::{Known, attribute, integer, is_onnx};
use super::nodes::{Nodes, Parts, whole, wholes, wholes_of};
use lapwing_onnx::messages::tensor_proto::DataType;
use lapwing_onnx::messages::{AttributeProto, NodeProto, TensorProto};

/// Appends what stands for a node in 8 bits; false if it is none, or has a form that is left to rten.
///
/// # Errors
///
/// Why rten would compute the node otherwise than its definition says.
pub(crate) fn node(node: &NodeProto, known: &Known, into: &mut Nodes) -> Result<bool, &'static str> {
    let is_microsoft = node.domain == "com.microsoft";
    let mut parts = Parts::of(node);
    let written = match node.op_type.as_str() {
        "MatMulInteger" if is_onnx(node) && saturates() => parts.matrices(known),
        "ConvInteger" if is_onnx(node) => {
            let attributes = convolution(node, known.constant_of(parts.input(1)));
            let rank = known.rank(parts.input(1));
            if rank.is_none() && !parts.input(3).is_empty() {
                return Err("the rank of its weights is not known, and so not which axis their zero points are of");
            }
            parts.integer_product("Conv", &attributes, [None, rank.map(|rank| by_axis(rank, 0))])
        }
        "QLinearMatMul" if is_onnx(node) => {
            let rows = each_row(parts.input(1), known) || each_row(parts.input(2), known);
            let (a, b) = (parts.dequantized(0, rows.then_some(-2)), parts.dequantized(3, Some(-1)));
            let product = parts.made("MatMul", &[&a, &b], &[]);
            parts.quantized(&product, 6)
        }
        "QLinearConv" if is_onnx(node) => parts.convolution(known),
        "QLinearAdd" | "QLinearMul" if is_microsoft => {
            let (a, b) = (parts.dequantized(0, None), parts.dequantized(3, None));
            let result = parts.made(&node.op_type["QLinear".len()..], &[&a, &b], &[]);
            parts.quantized(&result, 6)
        }
        "QLinearSigmoid" | "QLinearLeakyRelu" | "QLinearAveragePool" | "QLinearGlobalAveragePool"
            if is_microsoft && integer(node, "channels_last").unwrap_or(0) == 0 =>
        {
            let x = parts.dequantized(0, None);
            let attributes: Vec<AttributeProto> =
                node.attribute.iter().filter(|attribute| attribute.name != "channels_last").cloned().collect();
            let result = parts.made(&node.op_type["QLinear".len()..], &[&x], &attributes);
            parts.quantized(&result, 3)
        }
        "QLinearConcat" if is_microsoft => {
            let tensors: Vec<String> = (2..node.input.len()).step_by(3).map(|at| parts.dequantized(at, None)).collect();
            let tensors: Vec<&str> = tensors.iter().map(String::as_str).collect();
            let result = parts.made("Concat", &tensors, &node.attribute);
            parts.quantized(&result, 0)
        }
        "QLinearSoftmax"
            if is_microsoft && (integer(node, "opset").is_some_and(|opset| opset >= 13) || integer(node, "axis") == Some(-1)) =>
        {
            let x = parts.dequantized(0, None);
            let axis = whole("axis", integer(node, "axis").unwrap_or(-1));
            let result = parts.made("Softmax", &[&x], &[axis]);
            parts.quantized(&result, 3)
        }
        "QGemm" if is_microsoft => parts.gemm(),
        "DynamicQuantizeLSTM" if is_microsoft && !parts.input(4).is_empty() => {
            return Err("rten ignores the lengths of sequences (sequence_lens)");
        }
        "DynamicQuantizeLSTM" if is_microsoft && !parts.input(7).is_empty() => return Err("rten has no peepholes"),
        "DynamicQuantizeLSTM" if is_microsoft => {
            parts.lstm(known).ok_or("its weights are not constants in the file, and rten's products of 8 bits may overflow")?;
            true
        }
        _ => false,
    };
    if written {
        into.append(&mut parts.nodes);
    }
    Ok(written)
}

/// Whether rten's integer products may end at the limits of 16 bits on this processor.
fn saturates() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let has_vnni = std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vnni");
        !has_vnni
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether a scale or zero point of a product's first factor has a number for each row.
fn each_row(name: &str, known: &Known) -> bool {
    let is_one = known.constant_of(name).is_some_and(|tensor| tensor.dims == [1]);
    known.rank(name) == Some(1) && !is_one
}

/// The shape of numbers, one for each of an axis of a tensor.
fn by_axis(rank: usize, axis: usize) -> Vec<i64> {
    (0..rank).map(|at| if at == axis { -1 } else { 1 }).collect()
}

/// The attributes of a convolution, with the shape of its kernel.
fn convolution(node: &NodeProto, weight: Option<&TensorProto>) -> Vec<AttributeProto> {
    let mut attributes = node.attribute.clone();
    if let Some(dims) = weight.and_then(|weight| weight.dims.get(2..)).filter(|_| attribute(node, "kernel_shape").is_none()) {
        attributes.push(wholes("kernel_shape", dims));
    }
    attributes
}

impl Parts<'_> {
    /// The tensor of input `at`, whose scale and zero point follow.
    fn dequantized(&mut self, at: usize, axis: Option<i64>) -> String {
        let reads = [self.input(at), self.input(at + 1), self.input(at + 2)];
        let axis: Vec<AttributeProto> = axis.map(|axis| whole("axis", axis)).into_iter().collect();
        self.made("DequantizeLinear", if reads[2].is_empty() { &reads[..2] } else { &reads }, &axis)
    }

    /// The result, by the scale of input `at` and the zero point that follows.
    fn quantized(&mut self, result: &str, at: usize) -> bool {
        let reads = [result, self.input(at), self.input(at + 1)];
        self.last("QuantizeLinear", if reads[2].is_empty() { &reads[..2] } else { &reads }, &[])
    }

    fn in_single(&mut self, name: &str) -> String {
        self.made("Cast", &[name], &[whole("to", DataType::Float as i64)])
    }

    fn matrices(&mut self, known: &Known) -> bool {
        let rows = each_row(self.input(2), known).then(|| by_axis(2, 0));
        self.integer_product("MatMul", &[], [rows, None])
    }

    /// `MatMulInteger` and `ConvInteger`: inputs are two factors and their zero points, which are first given the shapes that are named.
    fn integer_product(&mut self, kind: &str, attributes: &[AttributeProto], shapes: [Option<Vec<i64>>; 2]) -> bool {
        let mut factors = Vec::new();
        for (at, shape) in shapes.into_iter().enumerate() {
            let number = self.in_single(self.input(at));
            factors.push(match self.input(at + 2) {
                "" => number,
                zero => {
                    let mut zero = self.in_single(zero);
                    if let Some(shape) = shape {
                        let shape = self.stored(wholes_of(&shape));
                        zero = self.made("Reshape", &[&zero, &shape], &[]);
                    }
                    self.made("Sub", &[&number, &zero], &[])
                }
            });
        }
        let product = self.made(kind, &[&factors[0], &factors[1]], attributes);
        let rounded = self.made("Round", &[&product], &[]);
        self.last("Cast", &[&rounded], &[whole("to", DataType::Int32 as i64)])
    }

    fn convolution(&mut self, known: &Known) -> bool {
        let attributes = convolution(self.node, known.constant_of(self.input(3)));
        let (x, weight) = (self.dequantized(0, None), self.dequantized(3, Some(0)));
        let result = match self.input(8) {
            "" => self.made("Conv", &[&x, &weight], &attributes),
            bias => {
                let scale = self.made("Mul", &[self.input(1), self.input(4)], &[]);
                let bias = self.in_single(bias);
                let bias = self.made("Mul", &[&bias, &scale], &[]);
                self.made("Conv", &[&x, &weight, &bias], &attributes)
            }
        };
        self.quantized(&result, 6)
    }

    fn gemm(&mut self) -> bool {
        let transposed = integer(self.node, "transB").unwrap_or(0) != 0;
        let (a, b) = (self.dequantized(0, None), self.dequantized(3, Some(if transposed { 0 } else { 1 })));
        let mut reads = vec![a, b];
        if !self.input(6).is_empty() {
            let scale = self.made("Mul", &[self.input(1), self.input(4)], &[]);
            let bias = self.in_single(self.input(6));
            reads.push(self.made("Mul", &[&bias, &scale], &[]));
        }
        let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
        let attributes = self.node.attribute.clone();
        if self.input(7).is_empty() {
            return self.last("Gemm", &reads, &attributes);
        }
        let result = self.made("Gemm", &reads, &attributes);
        self.quantized(&result, 7)
    }
}
