//! What is no product: maps, norms, softmax, reductions, and what only moves elements.

use super::counted::{Counted, Operations, product};
use crate::shaped::ShapedNode;

/// The operations of a node; `None` if it is none of these, or its shapes are not known.
pub(crate) fn operations(node: &Counted<'_>) -> Option<Operations> {
    let others = match kind(node.node)? {
        Kind::Moves => 0,
        Kind::Made(each) => node.made()?.checked_mul(each)?,
        Kind::Read(each) => node.read()?.checked_mul(each)?,
        Kind::Norm(each) => {
            let given = (1..3).filter(|at| node.has(*at)).count() as u64;
            node.made()?.checked_mul(each + given)?
        }
        Kind::Many => node.made()?.checked_mul((node.node.inputs.len() as u64).saturating_sub(1))?,
        Kind::Window => {
            let window = node.node.ints("kernel_shape")?.iter().map(|length| usize::try_from(*length).unwrap_or(0));
            node.made()?.checked_mul(product(&window.collect::<Vec<_>>()))?
        }
    };
    Some(Operations { flops: 0, others })
}

/// Whether a node is none of the products, though its shapes may not be known.
pub(crate) fn is_known(node: &ShapedNode) -> bool {
    kind(node).is_some()
}

/// What is counted.
enum Kind {
    /// Nothing.
    Moves,
    /// Steps for each element that is made.
    Made(u64),
    /// Steps for each element of the first input.
    Read(u64),
    /// Steps for each element, and one for each of scale and shift.
    Norm(u64),
    /// One for each input behind the first.
    Many,
    /// One for each place of the window.
    Window,
}

fn kind(node: &ShapedNode) -> Option<Kind> {
    if node.domain == "ai.onnx.ml" {
        return Some(match node.operator.as_str() {
            "ArrayFeatureExtractor" | "CategoryMapper" | "FeatureVectorizer" | "LabelEncoder" | "OneHotEncoder" => Kind::Moves,
            "Binarizer" | "Imputer" => Kind::Made(1),
            "Scaler" => Kind::Made(2),
            "Normalizer" => Kind::Made(3),
            // the plan of a tabular model counts comparisons, which depend on its trees
            _ => return None,
        });
    }
    if !matches!(node.domain.as_str(), "" | "com.microsoft") {
        return None;
    }
    Some(match node.operator.as_str() {
        "Cast" | "CastLike" | "Concat" | "ConstantOfShape" | "DepthToSpace" | "Expand" | "EyeLike" | "Gather"
        | "GatherElements" | "GatherND" | "NonZero" | "OneHot" | "Pad" | "QLinearConcat" | "Range" | "ReverseSequence"
        | "Scatter" | "ScatterElements" | "ScatterND" | "Slice" | "SpaceToDepth" | "Split" | "Tile" | "Transpose" | "Trilu"
        | "Compress" | "Unsqueeze" | "Squeeze" | "Reshape" => Kind::Moves,
        "Abs" | "Acos" | "Acosh" | "And" | "Asin" | "Asinh" | "Atan" | "Atanh" | "Add" | "BitShift" | "Ceil" | "Celu"
        | "Clip" | "Cos" | "Cosh" | "CumSum" | "Div" | "Elu" | "Equal" | "Erf" | "Exp" | "FastGelu" | "Floor" | "Gelu"
        | "Greater" | "GreaterOrEqual" | "HardSigmoid" | "HardSwish" | "IsInf" | "IsNaN" | "LeakyRelu" | "Less"
        | "LessOrEqual" | "Log" | "Mish" | "Mod" | "Mul" | "Neg" | "Not" | "Or" | "PRelu" | "Pow" | "QLinearAdd"
        | "QLinearLeakyRelu" | "QLinearMul" | "QLinearSigmoid" | "QuickGelu" | "RandomNormalLike" | "RandomUniformLike"
        | "RandomNormal" | "RandomUniform" | "Reciprocal" | "Relu" | "Round" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin"
        | "Sinh" | "Softplus" | "Softsign" | "Sqrt" | "Sub" | "Swish" | "Tan" | "Tanh" | "ThresholdedRelu" | "Where" | "Xor"
        | "Resize" | "Upsample" => Kind::Made(1),
        "BiasGelu" | "DequantizeLinear" | "QuantizeLinear" | "BatchNormalization" => Kind::Made(2),
        "RotaryEmbedding" => Kind::Made(3),
        "DynamicQuantizeLinear" => Kind::Made(4),
        "Softmax" | "LogSoftmax" | "QLinearSoftmax" | "Hardmax" | "LRN" => Kind::Made(5),
        "Max" | "Mean" | "Min" | "Sum" => Kind::Many,
        "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "LpNormalization"
        | "MeanVarianceNormalization" => Kind::Norm(5),
        "SkipLayerNormalization" => Kind::Norm(5),
        "SimplifiedLayerNormalization" | "RMSNormalization" | "SkipSimplifiedLayerNormalization" => Kind::Norm(3),
        "EmbedLayerNormalization" => Kind::Made(9),
        "ReduceL1"
        | "ReduceLogSum"
        | "ReduceMax"
        | "ReduceMean"
        | "ReduceMin"
        | "ReduceProd"
        | "ReduceSum"
        | "ArgMax"
        | "ArgMin"
        | "GlobalAveragePool"
        | "GlobalMaxPool"
        | "QLinearGlobalAveragePool"
        | "TopK" => Kind::Read(1),
        "ReduceL2" | "ReduceSumSquare" | "GlobalLpPool" => Kind::Read(2),
        "ReduceLogSumExp" => Kind::Read(3),
        "AveragePool" | "LpPool" | "MaxPool" | "QLinearAveragePool" => Kind::Window,
        _ => return None,
    })
}
