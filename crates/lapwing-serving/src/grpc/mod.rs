//! The protocol's gRPC half: `inference.GRPCInferenceService`, with Triton's `RepositoryIndex`.

mod infer;
mod message;
pub(crate) mod messages;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use prost::Message;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::{Code, Status};

use self::messages as m;
use self::messages::model_metadata_response::TensorMetadata;
use self::messages::repository_index_response::ModelIndex;
use super::error::RequestError;
#[cfg(any(test, feature = "testing"))]
use super::in_flight::InferenceRequest;
use super::in_flight::{InFlightInference, RequestTimeout};
use super::metrics::{EXECUTOR, SERVER_TIMING, StageTimes, server_timing};
use super::rest::pages::{EXTENSIONS, NAME, PLATFORM, axes};
use super::state::ServerState;
use lapwing_ledger::Stamp;
use lapwing_net::cut_grpc_message;
use lapwing_onnx::tensor::TensorSpec;
use lapwing_protocol::BytesCodec;

const STATUS: &str = "grpc-status";

/// A method that is called.
#[derive(Clone, Copy, Debug)]
enum Method {
    ServerLive,
    ServerReady,
    ModelReady,
    ServerMetadata,
    ModelMetadata,
    ModelInfer,
    RepositoryIndex,
}

impl Method {
    const ALL: [(Self, &'static str); 7] = [
        (Self::ServerLive, "/inference.GRPCInferenceService/ServerLive"),
        (Self::ServerReady, "/inference.GRPCInferenceService/ServerReady"),
        (Self::ModelReady, "/inference.GRPCInferenceService/ModelReady"),
        (Self::ServerMetadata, "/inference.GRPCInferenceService/ServerMetadata"),
        (Self::ModelMetadata, "/inference.GRPCInferenceService/ModelMetadata"),
        (Self::ModelInfer, "/inference.GRPCInferenceService/ModelInfer"),
        (Self::RepositoryIndex, "/inference.GRPCInferenceService/RepositoryIndex"),
    ];
}

/// Every method's path.
pub(crate) fn routes() -> Router<ServerState> {
    let mut router = Router::new();
    for (method, path) in Method::ALL {
        let handler = async move |State(shared): State<ServerState>, request: Request| call(shared, method, request).await;
        router = router.route(path, any(handler));
    }
    router
}

async fn call(shared: ServerState, method: Method, request: Request) -> Response {
    let arrival = Stamp::now();
    let (head, body) = request.into_parts();
    let message = match message::receive(head, body, &shared).await {
        Ok(message) => message,
        Err(error) => {
            shared.catalogue.metrics.refused(&error);
            return error.to_grpc().into_http();
        }
    };
    let (received, mut share) = (message.received, Some(message.share));
    let max_body = shared.limits.max_body_bytes();
    let service = tower::service_fn(move |message: tonic::Request<Bytes>| {
        let shared = shared.clone();
        // the decoded tensors share the message's memory, so it holds its share of the budget as long as they are there
        let message = message.map(|bytes| match share.take() {
            Some(share) => share.held_by(bytes),
            None => bytes,
        });
        async move { answer(&shared, method, arrival, received, message).await }
    });
    let mut accepted = EnabledCompressionEncodings::default();
    accepted.enable(CompressionEncoding::Gzip);
    let mut grpc = Grpc::new(BytesCodec)
        .apply_compression_config(accepted, EnabledCompressionEncodings::default())
        .apply_max_message_size_config(Some(max_body), None);
    let mut response = grpc.unary(service, message.request).await.map(Body::new);
    // tonic answers OUT_OF_RANGE to a message that is too large; the usual code is RESOURCE_EXHAUSTED
    if let Some(status) = response.headers_mut().get_mut(STATUS).filter(|status| *status == "11") {
        *status = HeaderValue::from(Code::ResourceExhausted as i32);
    }
    cut_grpc_message(response.headers_mut());
    response
}

async fn answer(
    shared: &ServerState,
    method: Method,
    arrival: Stamp,
    received: usize,
    request: tonic::Request<Bytes>,
) -> Result<tonic::Response<Bytes>, Status> {
    let came = Stamp::now();
    let (metadata, _, body) = request.into_parts();
    if let Method::ModelInfer = method {
        let checked = message::check_counts(&body, received);
        checked.inspect_err(|error| shared.catalogue.metrics.refused(error)).map_err(|error| error.to_grpc())?;
        return model_infer(shared, arrival, came, metadata.into_headers(), body).await;
    }
    answer_metadata(shared, method, body).map(|body| tonic::Response::new(body.into())).map_err(|error| error.to_grpc())
}

fn read<M: Message + Default>(body: Bytes) -> Result<M, RequestError> {
    M::decode(body).map_err(|error| RequestError::Input(format!("the message cannot be read: {error}")))
}

/// Every method except the one that runs a model.
fn answer_metadata(shared: &ServerState, method: Method, body: Bytes) -> Result<Vec<u8>, RequestError> {
    let catalogue = &shared.catalogue;
    let find = |name: &str, version: &str| catalogue.find(name, Some(version).filter(|version| !version.is_empty()));
    Ok(match method {
        Method::ServerLive => {
            read::<m::ServerLiveRequest>(body)?;
            m::ServerLiveResponse { live: true }.encode_to_vec()
        }
        Method::ServerReady => {
            read::<m::ServerReadyRequest>(body)?;
            m::ServerReadyResponse { ready: catalogue.is_ready() }.encode_to_vec()
        }
        Method::ModelReady => {
            let asked: m::ModelReadyRequest = read(body)?;
            m::ModelReadyResponse { ready: find(&asked.name, &asked.version)?.model.is_ready() }.encode_to_vec()
        }
        Method::ServerMetadata => {
            read::<m::ServerMetadataRequest>(body)?;
            let extensions = EXTENSIONS.iter().map(|name| (*name).to_owned()).collect();
            let (name, version) = (NAME.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
            m::ServerMetadataResponse { name, version, extensions }.encode_to_vec()
        }
        Method::ModelMetadata => {
            let asked: m::ModelMetadataRequest = read(body)?;
            let about = find(&asked.name, &asked.version)?.model.about();
            let (versions, platform) = (catalogue.versions(&about.name), PLATFORM.to_owned());
            let (inputs, outputs) = (ports(&about.inputs), ports(&about.outputs));
            m::ModelMetadataResponse { name: about.name.clone(), versions, platform, inputs, outputs }.encode_to_vec()
        }
        Method::RepositoryIndex => {
            let asked: m::RepositoryIndexRequest = read(body)?;
            let models = catalogue.index(asked.ready).map(|(about, state, reason)| ModelIndex {
                name: about.name.clone(),
                version: about.version.clone(),
                state: state.to_owned(),
                reason,
            });
            m::RepositoryIndexResponse { models: models.collect() }.encode_to_vec()
        }
        Method::ModelInfer => Vec::new(),
    })
}

fn ports(ports: &[TensorSpec]) -> Vec<TensorMetadata> {
    let port = |port: &TensorSpec| TensorMetadata {
        name: port.name.clone(),
        datatype: port.datatype.name().to_owned(),
        shape: axes(port),
    };
    ports.iter().map(port).collect()
}

/// What `message` asks for; for tests only.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decoded(message: Bytes) -> Result<InferenceRequest, RequestError> {
    message::check_counts(&message, message.len())?;
    infer::decode(read(message)?, RequestTimeout::default())
}

async fn model_infer(
    shared: &ServerState,
    arrival: Stamp,
    came: Stamp,
    headers: HeaderMap,
    body: Bytes,
) -> Result<tonic::Response<Bytes>, Status> {
    let message: m::ModelInferRequest = read(body).map_err(|error| error.to_grpc())?;
    let version = Some(message.model_version.as_str()).filter(|version| !version.is_empty());
    let entry = shared.catalogue.find(&message.model_name, version).map_err(|error| error.to_grpc())?;
    let mut told = HeaderMap::new();
    told.insert(EXECUTOR, HeaderValue::from_static(entry.model.about().executor.name()));
    let answered = async {
        let inference = InFlightInference::begin(entry, arrival, &shared.slots, &shared.limits)?;
        match run(shared, &inference, message, &headers, came).await {
            Ok((answer, spent, body)) => {
                inference.answered(&spent, &answer);
                Ok((spent, body))
            }
            Err(error) => {
                inference.failed(&error);
                Err(error)
            }
        }
    };
    match answered.await {
        Ok((spent, body)) => {
            told.extend(server_timing(&spent).map(|timing| (SERVER_TIMING, timing)));
            Ok(tonic::Response::from_parts(MetadataMap::from_headers(told), body, http::Extensions::new()))
        }
        Err(error) => {
            let error: RequestError = error;
            shared.catalogue.metrics.refused(&error);
            Err(Status::with_metadata(error.code(), error.message(), MetadataMap::from_headers(told)))
        }
    }
}

async fn run(
    shared: &ServerState,
    inference: &InFlightInference,
    mut message: m::ModelInferRequest,
    headers: &HeaderMap,
    came: Stamp,
) -> Result<(lapwing_model::service::Answer, StageTimes, Bytes), RequestError> {
    let id = std::mem::take(&mut message.id);
    let asked = infer::decode(message, RequestTimeout::from_grpc_header(headers)?)?;
    let decode_ns = came.elapsed();
    let answer = inference.call(asked, &shared.limits).await?;
    let done = Stamp::now();
    let body = infer::encode(inference.about(), id, &answer);
    let spent = StageTimes::of(&answer, decode_ns, done.elapsed());
    Ok((answer, spent, body))
}
