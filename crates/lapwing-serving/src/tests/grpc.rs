//! gRPC, by a client that knows only the messages.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::against;
use super::fake::{Does, adder, fake, le, only};
use crate::Limits;
use crate::grpc::messages::infer_parameter::ParameterChoice;
use crate::grpc::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::grpc::messages::*;
use lapwing_model::service::CallError;
use lapwing_protocol::BytesCodec;
use lapwing_settings::Size;

async fn channel(client: &super::Client) -> Channel {
    Endpoint::from_shared(client.base.clone()).unwrap().connect().await.unwrap()
}

async fn call<R: Message + Default>(
    channel: &Channel,
    method: &str,
    request: tonic::Request<Vec<u8>>,
) -> Result<tonic::Response<R>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = format!("/inference.GRPCInferenceService/{method}").parse().unwrap();
    let response = grpc.unary(request.map(Bytes::from), path, BytesCodec).await?;
    Ok(response.map(|body| R::decode(body).unwrap()))
}

async fn ask<R: Message + Default>(channel: &Channel, method: &str, request: &impl Message) -> Result<R, Status> {
    call(channel, method, tonic::Request::new(request.encode_to_vec())).await.map(tonic::Response::into_inner)
}

fn x(shape: &[i64]) -> InferInputTensor {
    InferInputTensor { name: "x".into(), datatype: "FP32".into(), shape: shape.to_vec(), ..Default::default() }
}

fn request() -> ModelInferRequest {
    ModelInferRequest {
        model_name: "m".into(),
        id: "7".into(),
        inputs: vec![x(&[1, 2])],
        raw_input_contents: vec![le(&[1.0, 2.5])],
        ..Default::default()
    }
}

fn timeout(choice: ParameterChoice) -> HashMap<String, InferParameter> {
    [("timeout".to_owned(), InferParameter { parameter_choice: Some(choice) })].into()
}

#[tokio::test]
async fn raw_and_typed_tensors_come_back_raw_with_what_ran_them() {
    against(adder(), Limits::default(), async |client| {
        let channel = channel(&client).await;
        let raw =
            call::<ModelInferResponse>(&channel, "ModelInfer", tonic::Request::new(request().encode_to_vec())).await.unwrap();
        let told = raw.metadata().clone();
        assert_eq!(told.get("lapwing-executor").unwrap(), "plan");
        let timing = told.get("server-timing").unwrap().to_str().unwrap().to_owned();
        // decoding takes some of it, and a busy machine more
        let (preprocessing, rest) = timing.strip_prefix("preprocessing;dur=").unwrap().split_once(", ").unwrap();
        assert!(
            preprocessing.parse::<f64>().unwrap() >= 0.1 && rest.contains("queue;dur=2.000000, forward;dur=7.500000"),
            "{timing}"
        );
        let got = raw.into_inner();
        assert_eq!((got.model_name.as_str(), got.model_version.as_str(), got.id.as_str()), ("m", "1", "7"));
        assert_eq!(got.raw_output_contents, [le(&[2.0, 3.5])]);
        let output = &got.outputs[0];
        assert_eq!(
            (output.name.as_str(), output.datatype.as_str(), &*output.shape, &output.contents),
            ("y", "FP32", &[1, 2][..], &None)
        );
        let said = |name: &str| got.parameters[name].parameter_choice.clone().unwrap();
        assert_eq!(
            (said("executor"), said("device")),
            (ParameterChoice::StringParam("plan".into()), ParameterChoice::StringParam("cpu".into()))
        );
        assert_eq!(
            (said("batch_calls"), said("padding_waste")),
            (ParameterChoice::Int64Param(4), ParameterChoice::DoubleParam(0.25))
        );
        assert_eq!(
            (said("batch_flops"), said("batch_useful_flops")),
            (ParameterChoice::Int64Param(96), ParameterChoice::Int64Param(70))
        );
        let contents = InferTensorContents { fp32_contents: vec![1.0, 2.5], ..Default::default() };
        let ids = InferInputTensor {
            name: "ids".into(),
            datatype: "INT64".into(),
            shape: vec![2],
            contents: Some(InferTensorContents { int64_contents: vec![i64::MIN, 3], ..Default::default() }),
            ..Default::default()
        };
        let typed = ModelInferRequest {
            inputs: vec![InferInputTensor { contents: Some(contents), ..x(&[1, 2]) }, ids],
            raw_input_contents: Vec::new(),
            outputs: vec![
                InferRequestedOutputTensor { name: "ids".into(), ..Default::default() },
                InferRequestedOutputTensor { name: "y".into(), ..Default::default() },
            ],
            ..request()
        };
        let got: ModelInferResponse = ask(&channel, "ModelInfer", &typed).await.unwrap();
        let ids: Bytes = [i64::MIN, 3].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into();
        assert_eq!(got.raw_output_contents, [ids, le(&[2.0, 3.5])]);
    })
    .await;
}

#[tokio::test]
async fn every_typed_field_is_read_into_its_datatype() {
    let all =
        InferTensorContents { int_contents: vec![-1], uint_contents: vec![200], bool_contents: vec![true], ..Default::default() };
    let only = |f: fn(&mut InferTensorContents, &InferTensorContents)| {
        let mut some = InferTensorContents::default();
        f(&mut some, &all);
        Some(some)
    };
    let (int, uint) =
        (only(|s, a| s.int_contents.clone_from(&a.int_contents)), only(|s, a| s.uint_contents.clone_from(&a.uint_contents)));
    let cases = [
        ("BOOL", only(|s, a| s.bool_contents.clone_from(&a.bool_contents)), Ok(vec![1])),
        ("INT8", int.clone(), Ok(vec![255])),
        ("INT16", int.clone(), Ok(vec![255, 255])),
        ("INT32", int, Ok(vec![255; 4])),
        ("UINT8", uint.clone(), Ok(vec![200])),
        ("UINT16", uint.clone(), Ok(vec![200, 0])),
        ("UINT32", uint.clone(), Ok(vec![200, 0, 0, 0])),
        ("UINT64", only(|s, _| s.uint64_contents.push(u64::MAX)), Ok(vec![255; 8])),
        ("FP64", only(|s, _| s.fp64_contents.push(1.0)), Ok(1_f64.to_le_bytes().to_vec())),
        ("INT8", uint, Err("uint_contents is given, but INT8 comes in int_contents")),
        ("UINT8", only(|s, _| s.uint_contents.push(256)), Err("uint_contents[0]: 256 is no UINT8")),
        ("FP16", None, Err("FP16 comes in raw_input_contents only")),
        ("BYTES", only(|s, _| s.bytes_contents.push(Bytes::from_static(b"ab"))), Ok(b"\x02\0\0\0ab".to_vec())),
        ("BYTES", None, Err("contents: element 0 of 1 has no length: 0 bytes are left")),
        ("STRING", None, Err("datatype: \"STRING\" is none of those that are read here")),
        ("INT64", None, Err("contents: 0 bytes where INT64 of shape [1] takes 8")),
    ];
    against(adder(), Limits::default(), async |client| {
        let channel = channel(&client).await;
        for (datatype, contents, wanted) in cases {
            let input = InferInputTensor {
                name: "ids".into(),
                datatype: datatype.into(),
                shape: vec![1],
                contents,
                ..Default::default()
            };
            let message = ModelInferRequest { inputs: vec![input], raw_input_contents: Vec::new(), ..request() };
            match (ask::<ModelInferResponse>(&channel, "ModelInfer", &message).await, wanted) {
                (Ok(got), Ok(bytes)) => assert_eq!(got.raw_output_contents, [Bytes::from(bytes)], "{datatype}"),
                (Err(status), Err(text)) => {
                    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, &*format!("inputs[0] (ids): {text}")));
                }
                (got, wanted) => panic!("{datatype}: {got:?}, not {wanted:?}"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_other_methods_tell_what_rest_tells() {
    let (m, cold) = (fake("m", "2", Does::Add), fake("m", "10", Does::Add));
    cold.ready.store(false, Ordering::SeqCst);
    against(vec![m as _, cold], Limits::default(), async |client| {
        let c = channel(&client).await;
        assert!(ask::<ServerLiveResponse>(&c, "ServerLive", &ServerLiveRequest {}).await.unwrap().live);
        assert!(!ask::<ServerReadyResponse>(&c, "ServerReady", &ServerReadyRequest {}).await.unwrap().ready);
        let ready = async |version: &str| {
            let asked = ModelReadyRequest { name: "m".into(), version: version.into() };
            ask::<ModelReadyResponse>(&c, "ModelReady", &asked).await.map(|r| r.ready)
        };
        assert_eq!((ready("").await.unwrap(), ready("2").await.unwrap()), (false, true));
        assert_eq!(ready("3").await.unwrap_err().code(), Code::NotFound);
        let server: ServerMetadataResponse = ask(&c, "ServerMetadata", &ServerMetadataRequest {}).await.unwrap();
        assert_eq!((server.name.as_str(), server.extensions.len()), ("lapwing", 3));
        let asked = ModelMetadataRequest { name: "m".into(), version: String::new() };
        let model: ModelMetadataResponse = ask(&c, "ModelMetadata", &asked).await.unwrap();
        assert_eq!(
            (model.versions, model.inputs[0].shape.clone(), model.platform.as_str()),
            (vec!["2".into(), "10".into()], vec![-1, 2], "lapwing_onnx")
        );
        let index: RepositoryIndexResponse = ask(&c, "RepositoryIndex", &RepositoryIndexRequest::default()).await.unwrap();
        let states: Vec<_> = index.models.iter().map(|m| (m.version.as_str(), m.state.as_str())).collect();
        assert_eq!(states, [("2", "READY"), ("10", "UNAVAILABLE")]);
        assert_eq!(
            ask::<ServerLiveResponse>(&c, "ModelStatistics", &ServerLiveRequest {}).await.unwrap_err().code(),
            Code::Unimplemented
        );
    })
    .await;
}

#[tokio::test]
async fn bad_messages_are_refused_by_name() {
    let raw = |bytes: Vec<Bytes>| ModelInferRequest { raw_input_contents: bytes, ..request() };
    let shaped = |shape: &[i64]| ModelInferRequest { inputs: vec![x(shape)], ..request() };
    let cases = [
        (
            raw(vec![le(&[1.0])]),
            Code::InvalidArgument,
            "inputs[0] (x): raw_input_contents: 4 bytes where FP32 of shape [1, 2] takes 8",
        ),
        (raw(vec![le(&[1.0]); 2]), Code::InvalidArgument, "raw_input_contents: 2 are given for 1 inputs; all come so, or none"),
        (shaped(&[-1, 2]), Code::InvalidArgument, "inputs[0] (x): shape: [-1, 2] has an axis below 0"),
        (shaped(&[i64::MAX, 3]), Code::InvalidArgument, "has more elements than can be counted"),
        (
            ModelInferRequest { model_name: "k".into(), ..request() },
            Code::NotFound,
            r#"model "k" is not served here; there is "m""#,
        ),
        (ModelInferRequest { model_version: "9".into(), ..request() }, Code::NotFound, r#"no version "9"; there is "1""#),
        (
            ModelInferRequest { parameters: timeout(ParameterChoice::Int64Param(-4)), ..request() },
            Code::InvalidArgument,
            "parameters.timeout",
        ),
    ];
    let limits = Limits { max_body: Size(1000), ..Limits::default() };
    against(adder(), limits, async |client| {
        let c = channel(&client).await;
        for (message, code, says) in cases {
            let status = ask::<ModelInferResponse>(&c, "ModelInfer", &message).await.unwrap_err();
            assert_eq!(status.code(), code, "{status:?}");
            assert!(status.message().contains(says), "{status:?}");
        }
        let garbage = tonic::Request::new(b"\xff\xff\xff".to_vec());
        assert_eq!(call::<ModelInferResponse>(&c, "ModelInfer", garbage).await.unwrap_err().code(), Code::InvalidArgument);
        let huge = raw(vec![vec![0; 2000].into()]);
        assert_eq!(ask::<ModelInferResponse>(&c, "ModelInfer", &huge).await.unwrap_err().code(), Code::ResourceExhausted);
    })
    .await;
}

#[tokio::test]
async fn a_status_does_not_repeat_a_long_field_or_path() {
    against(adder(), Limits::default(), async |client| {
        let c = channel(&client).await;
        let long = "x".repeat(8_000);
        let mut odd = tonic::Request::new(request().encode_to_vec());
        odd.metadata_mut().insert("grpc-encoding", long.parse().unwrap());
        let of_field = call::<ModelInferResponse>(&c, "ModelInfer", odd).await.unwrap_err();
        let of_path = call::<ModelInferResponse>(&c, &long, tonic::Request::new(Vec::new())).await.unwrap_err();
        for status in [of_field, of_path] {
            let length = status.message().len();
            assert_eq!(status.code(), Code::Unimplemented);
            assert!(status.message().contains("xxx") && length <= lapwing_net::MAX_ERROR_TEXT, "{length} bytes");
        }
    })
    .await;
}

#[tokio::test]
async fn what_the_model_says_becomes_a_code() {
    let cases = [
        (CallError::Full { waiting: 1 }, Code::ResourceExhausted),
        (CallError::Deadline { waited_ns: 1 }, Code::DeadlineExceeded),
        (CallError::NotReady { reason: "cold".into() }, Code::Unavailable),
        (CallError::Device { reason: "cuda:0: is lost".into() }, Code::Unavailable),
        (CallError::Failed { reason: "broken".into() }, Code::Internal),
        (CallError::Input { tensor: "x".into(), reason: "odd".into() }, Code::InvalidArgument),
    ];
    for (error, code) in cases {
        let text = error.to_string();
        against(only(Does::Fails(error)), Limits::default(), async |client| {
            let status = ask::<ModelInferResponse>(&channel(&client).await, "ModelInfer", &request()).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (code, &*text));
            assert_eq!(status.metadata().get("lapwing-executor").unwrap(), "plan");
        })
        .await;
    }
}

#[tokio::test]
async fn the_shorter_of_both_deadlines_counts() {
    let model = fake("m", "1", Does::Hangs);
    against(vec![model.clone() as _], Limits::default(), async |client| {
        let c = channel(&client).await;
        let short = ModelInferRequest { parameters: timeout(ParameterChoice::Int64Param(20_000)), ..request() };
        assert_eq!(ask::<ModelInferResponse>(&c, "ModelInfer", &short).await.unwrap_err().code(), Code::DeadlineExceeded);
        let mut late = tonic::Request::new(request().encode_to_vec());
        late.set_timeout(Duration::from_millis(300));
        // the client's own clock may be the first to say so, by another code
        let code = call::<ModelInferResponse>(&c, "ModelInfer", late).await.unwrap_err().code();
        assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&code), "{code:?}");
        let timeout = model.timeout_ns.load(Ordering::SeqCst);
        assert!((20_000_001..=300_000_000).contains(&timeout), "{timeout}");
        let mut odd = tonic::Request::new(request().encode_to_vec());
        odd.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
        let status = call::<ModelInferResponse>(&c, "ModelInfer", odd).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    })
    .await;
}
