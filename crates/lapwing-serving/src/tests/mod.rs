//! The server over a real socket, with fake models behind it.

mod fake;
mod faults;
mod garbage;
mod grpc;
mod infer;
mod life;
mod metrics;
mod pages;
mod placement;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Catalogue, Limits, serve};
use lapwing_model::service::Servable;

/// A response, read whole.
#[derive(Debug)]
struct Got {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A client of one server.
#[derive(Clone, Debug)]
struct Client {
    base: String,
    http: Legacy<HttpConnector, Full<Bytes>>,
    stop: CancellationToken,
}

impl Client {
    fn of(base: String, only_h2: bool, stop: CancellationToken) -> Self {
        let http = Legacy::builder(TokioExecutor::new()).http2_only(only_h2).build_http();
        Self { base, http, stop }
    }

    async fn send(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Got {
        let response = self.http.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        Got { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    async fn get(&self, path: &str) -> Got {
        self.send(Request::get(format!("{}{path}", self.base)), Bytes::new()).await
    }

    fn post(&self, path: &str) -> http::request::Builder {
        Request::post(format!("{}{path}", self.base))
    }

    /// `POST /v2/models/{model}/infer`
    async fn infer(&self, model: &str, body: impl Into<Bytes>) -> Got {
        self.send(self.post(&format!("/v2/models/{model}/infer")), body).await
    }

    /// The same with `json` before `binary`.
    async fn infer_binary(&self, model: &str, json: &str, binary: &[u8]) -> Got {
        let request = self.post(&format!("/v2/models/{model}/infer"));
        let request = request.header("Inference-Header-Content-Length", json.len());
        self.send(request, [json.as_bytes(), binary].concat()).await
    }
}

/// Serves `models` while `client` runs, then stops; both must end within 30 s.
async fn against<C: Future<Output = ()>>(models: Vec<Arc<dyn Servable>>, limits: Limits, client: impl FnOnce(Client) -> C) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let catalogue = Arc::new(Catalogue::new(models).unwrap());
    let stop = CancellationToken::new();
    let served = serve(listener, catalogue, limits, stop.clone());
    let ((), served) = tokio::join!(
        async {
            let client = client(Client::of(base, false, stop.clone()));
            Box::pin(tokio::time::timeout(Duration::from_secs(30), client)).await.expect("the client ends");
            stop.cancel();
        },
        tokio::time::timeout(Duration::from_secs(45), served)
    );
    served.expect("it stops").unwrap();
}

/// For handlers' tests without a socket: axum's `Body`.
fn body(bytes: impl Into<Bytes>) -> Body {
    Body::from(bytes.into())
}
