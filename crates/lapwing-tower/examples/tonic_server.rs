//! A tonic server with the layer. Its one method is `/digits.Digits/Predict`, whose messages are plain bytes.
//!
//!     cargo run -p lapwing-tower --example tonic_server      # listens on 127.0.0.1:8001, its pages on 127.0.0.1:8002
//!
//! Other addresses may follow, in this order.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use lapwing_tower::{LedgerLayer, RequestStages, ServerRecorder, Stage, Unit};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tower::Service;

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The method.
#[derive(Clone, Copy)]
struct Predict;

impl UnaryService<Bytes> for Predict {
    type Response = Bytes;
    type Future = Answer<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(async move {
            let stages = request.extensions().get::<RequestStages>().cloned().unwrap_or_default();
            stages.model("digits");
            stages.work(Unit::Row, request.get_ref().len() as u64);
            if request.get_ref().is_empty() {
                return Err(Status::invalid_argument("no rows"));
            }
            stages.during(Stage::Forward, tokio::time::sleep(Duration::from_millis(5))).await;
            Ok(Response::new(request.into_inner()))
        })
    }
}

/// The service, as generated code would have it.
#[derive(Clone, Copy)]
pub struct Digits;

impl NamedService for Digits {
    const NAME: &'static str = "digits.Digits";
}

impl<B> Service<http::Request<B>> for Digits
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(BytesCodec).unary(Predict, request).await) })
    }
}

/// Serves calls from `listener`, whose ledgers go to `recorder`.
///
/// # Errors
///
/// If the server fails.
pub async fn serve(listener: tokio::net::TcpListener, recorder: &ServerRecorder) -> Result<(), tonic::transport::Error> {
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let mut server = tonic::transport::Server::builder().layer(LedgerLayer::new(recorder).with_server_timing());
    server.add_service(Digits).serve_with_incoming(incoming).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recorder = ServerRecorder::start("digits")?;
    let address = |n: usize, default: &str| std::env::args().nth(n).unwrap_or_else(|| default.to_owned());
    let pages = tokio::net::TcpListener::bind(address(2, "127.0.0.1:8002")).await?;
    let router = axum::Router::new().fallback_service(recorder.stats_service());
    let calls = tokio::net::TcpListener::bind(address(1, "127.0.0.1:8001")).await?;
    let (served, shown) = tokio::join!(serve(calls, &recorder), axum::serve(pages, router).into_future());
    served?;
    shown?;
    Ok(())
}

/// Messages as they are.
#[derive(Clone, Copy, Default)]
pub struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
