//! The messages of `inference.GRPCInferenceService` (grpc_predict_v2.proto), as generated code would have them.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::serving) struct ServerLiveRequest {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::serving) struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub(in crate::serving) live: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::serving) struct ServerReadyRequest {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::serving) struct ServerReadyResponse {
    #[prost(bool, tag = "1")]
    pub(in crate::serving) ready: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct ModelReadyRequest {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::serving) struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub(in crate::serving) ready: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::serving) struct ServerMetadataRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) version: String,
    #[prost(string, repeated, tag = "3")]
    pub(in crate::serving) extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct ModelMetadataRequest {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(in crate::serving) versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub(in crate::serving) platform: String,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::serving) inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub(in crate::serving) outputs: Vec<TensorMetadata>,
}

/// `ModelMetadataResponse.TensorMetadata`
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(in crate::serving) shape: Vec<i64>,
}

/// `RepositoryIndexRequest` (Triton's extension)
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub(in crate::serving) repository_name: String,
    #[prost(bool, tag = "2")]
    pub(in crate::serving) ready: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::serving) models: Vec<ModelIndex>,
}

/// `RepositoryIndexResponse.ModelIndex`
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::serving) struct ModelIndex {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) version: String,
    #[prost(string, tag = "3")]
    pub(in crate::serving) state: String,
    #[prost(string, tag = "4")]
    pub(in crate::serving) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct InferParameter {
    #[prost(oneof = "Choice", tags = "1, 2, 3, 4, 5")]
    pub(in crate::serving) parameter_choice: Option<Choice>,
}

/// `InferParameter.parameter_choice`
#[derive(Clone, PartialEq, Oneof)]
pub(in crate::serving) enum Choice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub(in crate::serving) bool_contents: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub(in crate::serving) int_contents: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub(in crate::serving) int64_contents: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub(in crate::serving) uint_contents: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub(in crate::serving) uint64_contents: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub(in crate::serving) fp32_contents: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub(in crate::serving) fp64_contents: Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(in crate::serving) bytes_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub(in crate::serving) model_name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) model_version: String,
    #[prost(string, tag = "3")]
    pub(in crate::serving) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(in crate::serving) parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub(in crate::serving) inputs: Vec<InferInputTensor>,
    #[prost(message, repeated, tag = "6")]
    pub(in crate::serving) outputs: Vec<InferRequestedOutputTensor>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub(in crate::serving) raw_input_contents: Vec<Bytes>,
}

/// `ModelInferRequest.InferInputTensor`
#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct InferInputTensor {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(in crate::serving) shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub(in crate::serving) parameters: HashMap<String, InferParameter>,
    #[prost(message, optional, tag = "5")]
    pub(in crate::serving) contents: Option<InferTensorContents>,
}

/// `ModelInferRequest.InferRequestedOutputTensor`
#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct InferRequestedOutputTensor {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(map = "string, message", tag = "2")]
    pub(in crate::serving) parameters: HashMap<String, InferParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub(in crate::serving) model_name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) model_version: String,
    #[prost(string, tag = "3")]
    pub(in crate::serving) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(in crate::serving) parameters: HashMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub(in crate::serving) outputs: Vec<InferOutputTensor>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub(in crate::serving) raw_output_contents: Vec<Bytes>,
}

/// `ModelInferResponse.InferOutputTensor`
#[derive(Clone, PartialEq, Message)]
pub(in crate::serving) struct InferOutputTensor {
    #[prost(string, tag = "1")]
    pub(in crate::serving) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::serving) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(in crate::serving) shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub(in crate::serving) parameters: HashMap<String, InferParameter>,
    #[prost(message, optional, tag = "5")]
    pub(in crate::serving) contents: Option<InferTensorContents>,
}
