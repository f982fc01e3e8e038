//! A proxy of hyper and nothing else: what HTTP/1.1 costs before Lapwing does anything. No limits, no timeouts, no retries, no checks of heads,
//! no accounts. Each client's connection drives the upstream's in its own task, as Lapwing's does. `benches/overhead.py` measures it beside
//! others; nobody should use it.
//!
//! usage: `bare LISTEN UPSTREAM`, two addresses `host:port`

#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A connection to the upstream. It has no task: whoever has it drives it.
struct Upstream {
    send: SendRequest<Incoming>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>>>>,
}

impl Upstream {
    async fn open(address: &str) -> Self {
        let socket = connected(TcpStream::connect(address).await.expect("the upstream takes connections"));
        let (send, connection) =
            http1::Builder::new().preserve_header_case(true).handshake(socket).await.expect("no byte is needed for that");
        Self { send, driver: Box::pin(connection) }
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        let _ = self.driver.as_mut().poll(cx);
    }
}

fn connected(socket: TcpStream) -> TokioIo<TcpStream> {
    socket.set_nodelay(true).expect("a connected socket");
    TokioIo::new(socket)
}

type Idle = Rc<RefCell<Vec<Box<Upstream>>>>;

/// The response's body, which gives the connection back at its end.
struct Answer {
    body: Incoming,
    upstream: Option<Box<Upstream>>,
    idle: Idle,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        // only driving the connection adds frames
        let unwoken = &mut Context::from_waker(Waker::noop());
        let mut polled = Pin::new(&mut this.body).poll_frame(unwoken);
        if polled.is_pending()
            && let Some(upstream) = &mut this.upstream
        {
            upstream.drive(cx);
            polled = Pin::new(&mut this.body).poll_frame(unwoken);
        }
        if (this.body.is_end_stream() || matches!(polled, Poll::Ready(None)))
            && let Some(mut upstream) = this.upstream.take()
        {
            upstream.drive(cx);
            this.idle.borrow_mut().push(upstream);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn forward(mut request: Request<Incoming>, address: Rc<str>, idle: Idle) -> hyper::Result<Response<Answer>> {
    let known = idle.borrow_mut().pop();
    let mut upstream = match known {
        Some(upstream) => upstream,
        None => Box::new(Upstream::open(&address).await),
    };
    request.headers_mut().remove(header::CONNECTION);
    let mut answer = pin!(upstream.send.send_request(request));
    let response = poll_fn(|cx| {
        upstream.drive(cx);
        answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    });
    Ok(response.await?.map(|body| Answer { body, upstream: Some(upstream), idle }))
}

async fn serve(listen: &str, address: Rc<str>) {
    let (listener, idle) = (TcpListener::bind(listen).await.expect("the address is free"), Idle::default());
    loop {
        let (socket, _) = listener.accept().await.expect("a connection");
        let (address, idle) = (address.clone(), idle.clone());
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| forward(request, address.clone(), idle.clone()));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.preserve_header_case(true).auto_date_header(false).header_read_timeout(None);
            let _ = server.serve_connection(connected(socket), service).await;
        });
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream] = &arguments[..] else { panic!("usage: bare LISTEN UPSTREAM") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tokio::task::LocalSet::new().run_until(serve(listen, upstream.as_str().into())));
}
