//! The types that operators make.

use crate::constant::{datatype, is_float};
use crate::tensor::Datatype;
use crate::view::View;

/// The type of each output; what is missing at the end is like the last.
pub(crate) fn made(view: &View<'_>) -> Vec<Option<Datatype>> {
    let count = view.node.outputs.len();
    let mut kinds = if view.node.domain == "ai.onnx.ml" { classical(view) } else { general(view) };
    let last = kinds.last().copied().flatten();
    kinds.resize(count.max(kinds.len()), last);
    kinds.truncate(count);
    kinds
}

/// The type that an attribute names.
fn named(view: &View<'_>, name: &str) -> Option<Datatype> {
    view.node.int(name).and_then(|number| i32::try_from(number).ok()).and_then(datatype)
}

fn general(view: &View<'_>) -> Vec<Option<Datatype>> {
    let first = view.datatype(0);
    let whole = Some(Datatype::Int64);
    match view.node.operator.as_str() {
        "Cast" => vec![named(view, "to")],
        "CastLike" | "Where" => vec![view.datatype(1)],
        "Shape" | "Size" | "NonZero" | "ArgMax" | "ArgMin" | "NonMaxSuppression" => vec![whole],
        "TopK" | "MaxPool" | "Unique" => vec![first, whole],
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "IsNaN" | "IsInf" | "Not" | "And" | "Or" | "Xor" => {
            vec![Some(Datatype::Bool)]
        }
        "OneHot" => vec![view.datatype(2)],
        "ConstantOfShape" => vec![view.node.tensor("value").map_or(Some(Datatype::Fp32), |tensor| datatype(tensor.data_type))],
        "QuantizeLinear" if view.has(2) => vec![view.datatype(2)],
        "QuantizeLinear" => vec![named(view, "output_dtype").or(Some(Datatype::Uint8))],
        "DequantizeLinear" => vec![view.datatype(1)],
        "DynamicQuantizeLinear" => vec![Some(Datatype::Uint8), Some(Datatype::Fp32), Some(Datatype::Uint8)],
        "MatMulInteger" | "ConvInteger" | "MatMulInteger16" => vec![Some(Datatype::Int32)],
        "QLinearMatMul" | "QLinearConv" => vec![view.datatype(7)],
        "QGemm" => vec![view.datatype(8).or(Some(Datatype::Fp32))],
        "QAttention" => vec![view.datatype(3)],
        "MatMulIntegerToFloat" => vec![view.datatype(2)],
        "EmbedLayerNormalization" => vec![view.datatype(2), Some(Datatype::Int32), view.datatype(2)],
        "Dropout" if view.node.version >= 10 => vec![first, Some(Datatype::Bool)],
        "BatchNormalization" => vec![first, view.datatype(1)],
        "LayerNormalization" | "SimplifiedLayerNormalization" => vec![first, Some(Datatype::Fp32)],
        "RandomNormal" | "RandomUniform" => vec![named(view, "dtype").or(Some(Datatype::Fp32))],
        "RandomNormalLike" | "RandomUniformLike" | "EyeLike" | "Bernoulli" => vec![named(view, "dtype").or(first)],
        "Multinomial" => vec![named(view, "dtype").or(Some(Datatype::Int32))],
        "HannWindow" | "HammingWindow" | "BlackmanWindow" | "MelWeightMatrix" => {
            vec![named(view, "output_datatype").or(Some(Datatype::Fp32))]
        }
        "GridSample" | "RoiAlign" => vec![first],
        "StringNormalizer" => vec![Some(Datatype::Bytes)],
        "TfIdfVectorizer" => vec![Some(Datatype::Fp32)],
        _ => vec![first],
    }
}

fn classical(view: &View<'_>) -> Vec<Option<Datatype>> {
    let first = view.datatype(0);
    let has_texts = |name: &str| view.node.texts(name) > 0;
    match view.node.operator.as_str() {
        "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => {
            let label = if has_texts("classlabels_strings") { Datatype::Bytes } else { Datatype::Int64 };
            vec![Some(label), Some(Datatype::Fp32)]
        }
        "TreeEnsemble" => vec![first.filter(|kind| is_float(*kind)).or(Some(Datatype::Fp32))],
        "LabelEncoder" => vec![label_encoder(view)],
        "CategoryMapper" => {
            vec![Some(if first == Some(Datatype::Bytes) { Datatype::Int64 } else { Datatype::Bytes })]
        }
        "ArrayFeatureExtractor" | "Imputer" | "Binarizer" => vec![first],
        "ZipMap" | "CastMap" | "DictVectorizer" => vec![None],
        _ => vec![Some(Datatype::Fp32)],
    }
}

fn label_encoder(view: &View<'_>) -> Option<Datatype> {
    let node = view.node;
    if let Some(values) = node.tensor("values_tensor") {
        return datatype(values.data_type);
    }
    let given = [
        (node.texts("values_strings") > 0, Datatype::Bytes),
        (node.ints("values_int64s").is_some_and(|given| !given.is_empty()), Datatype::Int64),
        (node.floats("values_floats").is_some_and(|given| !given.is_empty()), Datatype::Fp32),
    ];
    let found = given.into_iter().find(|(is_given, _)| *is_given).map(|(_, kind)| kind);
    // the first version maps strings to numbers, or numbers to strings
    found.or_else(|| Some(if view.datatype(0)? == Datatype::Bytes { Datatype::Int64 } else { Datatype::Bytes }))
}
