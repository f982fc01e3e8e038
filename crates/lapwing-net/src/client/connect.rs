//! The connector that connects hyper's pooled client to its target, whatever the request's URI.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Uri, Version};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;

use crate::socket::Socket;
use crate::target::{ConnectError, Target};

/// Connects to `target` within `limit`.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) version: Version,
    pub(crate) limit: Duration,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Socket>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Socket>, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { target, version, limit } = self.clone();
        Box::pin(async move { target.connect(Some(version), limit).await.map(TokioIo::new) })
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
