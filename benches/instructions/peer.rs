//! The client and the upstream of an exchange: raw sockets that write prepared bytes and read up to known ones. So their cost is
//! small and constant.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Reads until the bytes received end with `end`; `false` if the connection ends before. The bytes are discarded at the next
/// call.
pub(crate) async fn read_to(socket: &mut TcpStream, end: &[u8], buffer: &mut Vec<u8>) -> bool {
    buffer.clear();
    while !buffer.ends_with(end) {
        if socket.read_buf(buffer).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    true
}

/// The answer of an upstream, in pieces. The next piece is sent when the client has received the previous one.
pub(crate) struct Answer {
    /// The last bytes of the request.
    pub(crate) after: &'static [u8],
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Notified when the client has received a piece.
    pub(crate) taken: Rc<Notify>,
}

/// Answers every request of every connection.
pub(crate) async fn serve(listener: TcpListener, answer: Rc<Answer>) {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let answer = answer.clone();
        tokio::task::spawn_local(async move {
            let mut buffer = Vec::with_capacity(16 << 10);
            while read_to(&mut socket, answer.after, &mut buffer).await {
                for (n, piece) in answer.pieces.iter().enumerate() {
                    if n > 0 {
                        answer.taken.notified().await;
                    }
                    socket.write_all(piece).await.unwrap();
                }
            }
        });
    }
}

/// Sends the same request repeatedly over one connection.
pub(crate) struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    /// The last bytes of each piece of the answer.
    ends: Vec<Vec<u8>>,
    taken: Rc<Notify>,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr, request: Vec<u8>, ends: Vec<Vec<u8>>, taken: Rc<Notify>) -> Self {
        let socket = TcpStream::connect(to).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, request, ends, taken, buffer: Vec::with_capacity(16 << 10) }
    }

    pub(crate) async fn exchange(&mut self) {
        self.socket.write_all(&self.request).await.unwrap();
        for (n, end) in self.ends.iter().enumerate() {
            assert!(read_to(&mut self.socket, end, &mut self.buffer).await, "the connection ended");
            if n + 1 < self.ends.len() {
                self.taken.notify_one();
            }
        }
    }
}
