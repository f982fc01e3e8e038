//! Minimal HTTP/2 for both ends of a gRPC call: sends prepared frames, and reads incoming ones only to find the end of a stream.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A literal header field that is not added to the dynamic table.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0, u8::try_from(name.len()).unwrap()];
    field.extend_from_slice(name.as_bytes());
    field.push(u8::try_from(value.len()).unwrap());
    field.extend_from_slice(value.as_bytes());
    field
}

/// The first frames of both ends: settings, and a connection window that is never used up.
fn greeting() -> Vec<u8> {
    [frame(SETTINGS, 0, 0, &[]), frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())].concat()
}

struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Connection {
    fn new(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        Self { socket, buffer: Vec::with_capacity(64 << 10), at: 0 }
    }

    async fn have(&mut self, n: usize) -> bool {
        while self.buffer.len() - self.at < n {
            if self.at == self.buffer.len() {
                self.buffer.clear();
                self.at = 0;
            }
            if self.socket.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return false;
            }
        }
        true
    }

    /// Reads until the other end ends a stream, and returns the stream's number.
    async fn ended(&mut self) -> Option<u32> {
        loop {
            if !self.have(9).await {
                return None;
            }
            let head = &self.buffer[self.at..self.at + 9];
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if !self.have(9 + length).await {
                return None;
            }
            let payload = self.at + 9..self.at + 9 + length;
            self.at = payload.end;
            match kind {
                DATA | HEADERS if flags & END_STREAM > 0 => return Some(stream),
                SETTINGS if flags & ACK == 0 => self.socket.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap(),
                PING if flags & ACK == 0 => {
                    let pong = frame(PING, ACK, 0, &self.buffer[payload]);
                    self.socket.write_all(&pong).await.unwrap();
                }
                _ => {}
            }
        }
    }
}

/// Sends the same call repeatedly over one connection.
pub(crate) struct Client {
    connection: Connection,
    headers: Vec<u8>,
    message: Vec<u8>,
    stream: u32,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr, path: &str, message: Vec<u8>) -> Self {
        let mut connection = Connection::new(TcpStream::connect(to).await.unwrap());
        connection.socket.write_all(&[PREFACE, &greeting()].concat()).await.unwrap();
        // :method POST, :scheme http
        let mut headers = vec![0x83, 0x86];
        for (name, value) in [
            (":path", path),
            (":authority", "m:8001"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-python/1.60.0 grpc-c/37.0.0 (linux; chttp2)"),
            ("grpc-accept-encoding", "identity, deflate, gzip"),
        ] {
            headers.extend(field(name, value));
        }
        Self { connection, headers, message, stream: 1 }
    }

    pub(crate) async fn exchange(&mut self) {
        let mut asked = frame(HEADERS, END_HEADERS, self.stream, &self.headers);
        asked.extend(frame(DATA, END_STREAM, self.stream, &self.message));
        self.connection.socket.write_all(&asked).await.unwrap();
        assert_eq!(self.connection.ended().await, Some(self.stream), "the call did not end");
        self.stream += 2;
    }
}

/// Answers every call of every connection with `message` and status 0.
pub(crate) async fn serve(listener: TcpListener, message: &'static [u8]) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = Connection::new(socket);
        tokio::task::spawn_local(async move {
            if !connection.have(PREFACE.len()).await {
                return;
            }
            connection.at += PREFACE.len();
            connection.socket.write_all(&greeting()).await.unwrap();
            // :status 200
            let mut head = vec![0x88];
            head.extend(field("content-type", "application/grpc"));
            head.extend(field("date", "Sat, 21 Nov 2026 07:39:55 GMT"));
            let trailers = [field("grpc-status", "0"), field("grpc-message", "")].concat();
            while let Some(stream) = connection.ended().await {
                let mut answer = frame(HEADERS, END_HEADERS, stream, &head);
                answer.extend(frame(DATA, 0, stream, message));
                answer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
                connection.socket.write_all(&answer).await.unwrap();
            }
        });
    }
}
