//! Which rule says what shapes an operator makes.

use super::lengths::Symbols;
use super::{elementwise as each, layout, products, recurrent, select, tabular, windows};
use crate::view::{Shapes, View};

type Rule = fn(&View<'_>, &mut Symbols) -> Shapes;

/// The rule of an operator; `None` if it is not known.
pub(crate) fn rule(domain: &str, operator: &str) -> Option<Rule> {
    match domain {
        "" | "ai.onnx" => elementwise(operator).or_else(|| arranging(operator)).or_else(|| computing(operator)),
        "com.microsoft" | "com.microsoft.nchwc" => fused(operator),
        "ai.onnx.ml" => classical(operator),
        _ => None,
    }
}

/// ONNX's own that keep a shape, and those of the next function.
fn elementwise(operator: &str) -> Option<Rule> {
    Some(match operator {
        "Abs"
        | "Acos"
        | "Acosh"
        | "Asin"
        | "Asinh"
        | "Atan"
        | "Atanh"
        | "Bernoulli"
        | "BitwiseNot"
        | "Cast"
        | "CastLike"
        | "Ceil"
        | "Celu"
        | "Clip"
        | "Cos"
        | "Cosh"
        | "CumSum"
        | "DequantizeLinear"
        | "Elu"
        | "Erf"
        | "Exp"
        | "EyeLike"
        | "Floor"
        | "Gelu"
        | "GroupNormalization"
        | "HardSigmoid"
        | "HardSwish"
        | "Hardmax"
        | "Identity"
        | "InstanceNormalization"
        | "IsInf"
        | "IsNaN"
        | "LRN"
        | "LeakyRelu"
        | "Log"
        | "LogSoftmax"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "Mish"
        | "Neg"
        | "Not"
        | "PRelu"
        | "QuantizeLinear"
        | "RMSNormalization"
        | "RandomNormalLike"
        | "RandomUniformLike"
        | "Reciprocal"
        | "Relu"
        | "ReverseSequence"
        | "RotaryEmbedding"
        | "Round"
        | "Scatter"
        | "ScatterElements"
        | "ScatterND"
        | "Selu"
        | "Shrink"
        | "Sigmoid"
        | "Sign"
        | "Sin"
        | "Sinh"
        | "Softmax"
        | "Softplus"
        | "Softsign"
        | "Sqrt"
        | "Swish"
        | "Tan"
        | "Tanh"
        | "TensorScatter"
        | "ThresholdedRelu"
        | "Trilu" => each::first,
        _ => return statistical(operator),
    })
}

/// ONNX's own that broadcast, normalize or reduce.
fn statistical(operator: &str) -> Option<Rule> {
    Some(match operator {
        "Dropout" => each::with_mask,
        "Add" | "And" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "Div" | "Equal" | "Greater"
        | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Max" | "Mean" | "Min" | "Mod" | "Mul" | "Or" | "Pow" | "Sub" | "Sum"
        | "Where" | "Xor" => each::broadcast,
        "BatchNormalization" => each::batch_norm,
        "LayerNormalization" => each::layer_norm,
        "DynamicQuantizeLinear" => each::dynamic_quantise,
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin"
        | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => each::reduce,
        "ArgMax" | "ArgMin" => each::arg,
        // what ONNX Runtime takes under ONNX's own name
        "SimplifiedLayerNormalization" => each::layer_norm,
        _ => return None,
    })
}

/// ONNX's own that arrange, take, join or make elements.
fn arranging(operator: &str) -> Option<Rule> {
    Some(match operator {
        "Reshape" => layout::reshape,
        "Flatten" => layout::flatten,
        "Squeeze" => layout::squeeze,
        "Unsqueeze" => layout::unsqueeze,
        "Transpose" => layout::transpose,
        "Expand" => layout::expand,
        "Tile" => layout::tile,
        "DepthToSpace" | "SpaceToDepth" => layout::blocks,
        "Gather" => select::gather,
        "GatherElements" => select::like_second,
        "GatherND" => select::gather_nd,
        "Concat" => select::concat,
        "Split" => select::split,
        "Slice" => select::slice,
        "Pad" => select::pad,
        "Resize" | "Upsample" => select::resize,
        "TopK" => select::top_k,
        "OneHot" => select::one_hot,
        "NonZero" => select::non_zero,
        "Compress" => select::compress,
        "Shape" => select::shape_of,
        "Size" => select::scalar,
        "Range" => select::range,
        "Unique" => select::unique,
        "TfIdfVectorizer" => tabular::tf_idf,
        "ConstantOfShape" => select::of_shape,
        "RandomNormal" | "RandomUniform" => select::of_attribute,
        _ => return None,
    })
}

/// ONNX's own products, windows, recurrent cells and transforms.
fn computing(operator: &str) -> Option<Rule> {
    Some(match operator {
        "MatMul" | "MatMulInteger" => products::matmul,
        "QLinearMatMul" => products::quantised_matmul,
        "Gemm" => products::gemm,
        "Einsum" => products::einsum,
        "Conv" | "ConvInteger" => windows::conv,
        "QLinearConv" => windows::quantised_conv,
        "ConvTranspose" => windows::conv_transpose,
        "AveragePool" | "LpPool" | "MaxPool" => windows::pool,
        "GlobalAveragePool" | "GlobalLpPool" | "GlobalMaxPool" => windows::global_pool,
        "GridSample" => windows::grid_sample,
        "RoiAlign" => windows::roi_align,
        "GRU" | "LSTM" | "RNN" => recurrent::recurrent,
        "Attention" => recurrent::attention,
        "STFT" => recurrent::stft,
        "DFT" => recurrent::dft,
        "NonMaxSuppression" => recurrent::chosen_boxes,
        _ => return None,
    })
}

/// Operators that ONNX Runtime adds, and that its optimiser writes.
fn fused(operator: &str) -> Option<Rule> {
    Some(match operator {
        "BiasGelu" | "BiasSoftmax" | "FastGelu" | "Gelu" | "GroupNorm" | "QLinearLeakyRelu" | "QLinearSigmoid"
        | "QLinearSoftmax" | "QuantizeLinear" | "DequantizeLinear" | "QuickGelu" | "RotaryEmbedding" | "Inverse" | "Trilu" => {
            each::first
        }
        "LayerNormalization" | "SimplifiedLayerNormalization" => each::layer_norm,
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => each::skip_norm,
        "QLinearAdd" | "QLinearMul" => each::quantised_broadcast,
        "QLinearConcat" => select::quantised_concat,
        "QLinearAveragePool" => windows::pool,
        "QLinearGlobalAveragePool" => windows::global_pool,
        "DynamicQuantizeMatMul" | "MatMulIntegerToFloat" | "MatMulInteger16" => products::matmul,
        "FusedMatMul" | "FusedMatMulActivation" | "TransposeMatMul" => products::fused_matmul,
        "FusedGemm" | "GemmFastGelu" => products::gemm,
        "QGemm" => products::quantised_gemm,
        "MatMulNBits" | "MatMulBnb4" => products::matmul_bits,
        "QLinearConv" => windows::quantised_conv,
        "FusedConv" => windows::conv,
        "DynamicQuantizeLSTM" => recurrent::recurrent,
        "MultiHeadAttention" => recurrent::multi_head,
        "GroupQueryAttention" => recurrent::group_query,
        "Attention" | "QAttention" => recurrent::packed_attention,
        "EmbedLayerNormalization" => recurrent::embed,
        "GridSample" => windows::grid_sample,
        _ => return None,
    })
}

fn classical(operator: &str) -> Option<Rule> {
    Some(match operator {
        "Binarizer" | "CategoryMapper" | "Imputer" | "LabelEncoder" | "Normalizer" | "Scaler" => each::first,
        "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => tabular::classifier,
        "LinearRegressor" | "SVMRegressor" | "TreeEnsemble" | "TreeEnsembleRegressor" => tabular::regressor,
        "FeatureVectorizer" => tabular::features,
        "ArrayFeatureExtractor" => tabular::extract,
        "OneHotEncoder" => tabular::one_hot,
        _ => return None,
    })
}
