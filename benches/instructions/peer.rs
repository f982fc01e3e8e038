//! The client and the upstream of an exchange: raw sockets that write prepared bytes and read up to known ones, so that they
//! cost little and always the same.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Reads until what came ends with `end`, and forgets it.
pub(crate) async fn read_to(socket: &mut TcpStream, end: &[u8], buffer: &mut Vec<u8>) -> bool {
    buffer.clear();
    while !buffer.ends_with(end) {
        if socket.read_buf(buffer).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    true
}

/// What an upstream answers: the pieces, of which each but the first waits until the client has the one before.
pub(crate) struct Answer {
    /// The end of the request.
    pub(crate) after: &'static [u8],
    pub(crate) pieces: Vec<Vec<u8>>,
    /// The client has a piece.
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

/// Sends the same request again and again over one connection.
pub(crate) struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    /// The ends of the answer's pieces.
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
