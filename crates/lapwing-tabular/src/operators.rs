//! The operators that are known, by domain and name.

use crate::operator::Loader;
use crate::{encode, ensemble, linear, product, scale, select, svm, tensors};

/// How an operator is loaded; `None` if it is unknown.
pub(crate) fn loader(domain: &str, name: &str) -> Option<Loader> {
    match domain {
        "ai.onnx.ml" => classical(name),
        "" | "ai.onnx" => general(name),
        _ => None,
    }
}

fn classical(name: &str) -> Option<Loader> {
    Some(match name {
        "ArrayFeatureExtractor" => select::array_feature_extractor,
        "Binarizer" => scale::binarizer,
        "CategoryMapper" => encode::category_mapper,
        "FeatureVectorizer" => select::feature_vectorizer,
        "Imputer" => scale::imputer,
        "LabelEncoder" => encode::label_encoder,
        "LinearClassifier" => linear::classifier,
        "LinearRegressor" => linear::regressor,
        "Normalizer" => scale::normalizer,
        "OneHotEncoder" => encode::one_hot_encoder,
        "SVMClassifier" => svm::classifier,
        "SVMRegressor" => svm::regressor,
        "Scaler" => scale::scaler,
        "TreeEnsemble" => ensemble::ensemble,
        "TreeEnsembleClassifier" => ensemble::classifier,
        "TreeEnsembleRegressor" => ensemble::regressor,
        "ZipMap" => select::zip_map,
        _ => return None,
    })
}

fn general(name: &str) -> Option<Loader> {
    Some(match name {
        "Abs" | "Ceil" | "Exp" | "Floor" | "IsNaN" | "Log" | "Neg" | "Not" | "Reciprocal" | "Relu" | "Round" | "Sigmoid"
        | "Sign" | "Sqrt" | "Tanh" => tensors::unary,
        "Add" | "And" | "Div" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Max" | "Min" | "Mul"
        | "Or" | "Pow" | "Sub" | "Sum" | "Xor" => tensors::binary,
        "ArgMax" | "ArgMin" => tensors::arg,
        "Cast" => tensors::cast,
        "Clip" => tensors::clip,
        "Concat" => tensors::concat,
        "Constant" => tensors::constant,
        "ConstantOfShape" => tensors::constant_of_shape,
        "Dropout" | "Identity" => tensors::identity,
        "Expand" => tensors::expand,
        "Flatten" => tensors::flatten,
        "Gather" => tensors::gather,
        "Gemm" => product::gemm,
        "MatMul" => product::matmul,
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin"
        | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => tensors::reduce,
        "Reshape" => tensors::reshape,
        "Shape" => tensors::shape_of,
        "Slice" => tensors::slice,
        "Softmax" => tensors::softmax,
        "Split" => tensors::split,
        "Squeeze" => tensors::squeeze,
        "TopK" => tensors::top_k,
        "Transpose" => tensors::transpose,
        "Unsqueeze" => tensors::unsqueeze,
        "Where" => tensors::choose,
        _ => return None,
    })
}
