//! HTTP/1.1 over a raw socket, for client and server, and a strategy for arbitrary messages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;

/// How long a read may wait, so that no test hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) type Field = (String, Vec<u8>);

/// A message as it arrived: start line, fields in order, body without its framing, trailers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) start: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<Field>,
}

impl Message {
    pub(crate) fn all(&self, name: &str) -> Vec<&[u8]> {
        self.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice()).collect()
    }

    /// Fields as they may be compared: those of one name together, for only their order among each other has a meaning.
    pub(crate) fn grouped(&self) -> Vec<Field> {
        let mut fields = self.fields.clone();
        fields.sort_by_key(|(name, _)| name.to_ascii_lowercase()); // a stable sort
        fields
    }

    pub(crate) fn sorted_trailers(&self) -> Vec<Field> {
        let mut trailers: Vec<_> = self.trailers.iter().map(|(n, v)| (n.to_ascii_lowercase(), v.clone())).collect();
        trailers.sort();
        trailers
    }
}

pub(crate) struct Wire {
    socket: TcpStream,
    buf: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, buf: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.socket.write_all(bytes.as_ref()).unwrap();
        self
    }

    pub(crate) fn say(&mut self, said: &Said) {
        for piece in &said.pieces {
            self.send(piece);
        }
    }

    /// `false` at the end.
    pub(crate) fn more(&mut self) -> bool {
        let mut space = [0; 16384];
        let n = self.socket.read(&mut space).unwrap();
        self.buf.extend_from_slice(&space[..n]);
        n > 0
    }

    pub(crate) fn exactly(&mut self, n: usize) -> Vec<u8> {
        while self.buf.len() < n {
            assert!(self.more(), "closed amid a message: {:?}", String::from_utf8_lossy(&self.buf));
        }
        self.buf.drain(..n).collect()
    }

    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buf.windows(2).position(|w| w == b"\r\n") {
                let line = self.buf.drain(..at).collect();
                self.buf.drain(..2);
                return Some(line);
            }
            if !self.more() {
                return None;
            }
        }
    }

    pub(crate) fn fields(&mut self) -> Vec<Field> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().unwrap();
            if line.is_empty() {
                return fields;
            }
            let colon = line.iter().position(|b| *b == b':').unwrap();
            fields.push((String::from_utf8(line[..colon].to_vec()).unwrap(), line[colon + 1..].trim_ascii().to_vec()));
        }
    }

    /// A whole message; `None` at the end.
    pub(crate) fn message(&mut self) -> Option<Message> {
        let start = String::from_utf8(self.line()?).unwrap();
        let mut message = Message { start, fields: self.fields(), ..Message::default() };
        if !message.all("transfer-encoding").is_empty() {
            loop {
                let size = usize::from_str_radix(std::str::from_utf8(&self.line().unwrap()).unwrap(), 16).unwrap();
                if size == 0 {
                    break;
                }
                message.body.extend(self.exactly(size));
                assert_eq!(self.exactly(2), b"\r\n");
            }
            message.trailers = self.fields();
        } else if let Some(length) = message.all("content-length").first() {
            let length = std::str::from_utf8(length).unwrap().parse().unwrap();
            message.body = self.exactly(length);
        }
        Some(message)
    }
}

/// A message and the bytes that say it, in the pieces they are written in.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) message: Message,
    pub(crate) pieces: Vec<Vec<u8>>,
}

pub(crate) fn any_name() -> impl Strategy<Value = String> {
    // few names in several cases, so that there are duplicates; and any
    prop_oneof![2 => "[xX]-([aA]b|[cC]|[dD]{2})", 1 => "X-[A-Za-z0-9_.~-]{1,16}"]
}

pub(crate) fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![Just(b' '), Just(b'\t'), 0x21..=0x7e_u8, 0x80..=0xff_u8];
    prop::collection::vec(text, 0..24).prop_map(|v| v.trim_ascii().to_vec())
}

/// Frames `body` and cuts the whole at `cuts`.
pub(crate) fn say(start: String, head: Vec<Field>, body: Body, cuts: &[Index]) -> Said {
    let Body { bytes, chunks, trailers, at } = body;
    let mut message = Message { start, fields: head, body: bytes, trailers };
    let mut framing = match &chunks {
        None => vec![("Content-Length".to_owned(), message.body.len().to_string().into_bytes())],
        Some(_) => vec![("Transfer-Encoding".to_owned(), b"chunked".to_vec())],
    };
    if !message.trailers.is_empty() {
        let names: Vec<_> = message.trailers.iter().map(|(name, _)| name.as_str()).collect();
        framing.push(("Trailer".to_owned(), names.join(", ").into_bytes()));
    }
    for field in framing {
        let at = at.index(message.fields.len() + 1);
        message.fields.insert(at, field);
    }
    let mut bytes = format!("{}\r\n", message.start).into_bytes();
    let put = |bytes: &mut Vec<u8>, fields: &[Field]| {
        for (name, value) in fields {
            bytes.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
    };
    put(&mut bytes, &message.fields);
    match chunks {
        None => bytes.extend_from_slice(&message.body),
        Some(size) => {
            for chunk in message.body.chunks(size) {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n");
            put(&mut bytes, &message.trailers);
        }
    }
    let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
    at.sort_unstable();
    Said { message, pieces: at.windows(2).map(|w| bytes[w[0]..w[1]].to_vec()).collect() }
}

#[derive(Clone, Debug)]
pub(crate) struct Body {
    bytes: Vec<u8>,
    /// The size of its chunks, if it is chunked.
    chunks: Option<usize>,
    trailers: Vec<Field>,
    /// Where in the head the framing stands.
    at: Index,
}

pub(crate) fn any_body() -> impl Strategy<Value = Body> {
    let bytes = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..600),
        1 => (0..200_000_usize, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
    ];
    let trailers = prop::sample::subsequence(vec!["X-Sum", "X-End"], 0..=2);
    let trailers = (trailers, any_value()).prop_map(|(names, v)| names.iter().map(|n| ((*n).to_owned(), v.clone())).collect());
    (bytes, prop::option::of(1..5000_usize), trailers, any::<Index>()).prop_map(|(bytes, chunks, trailers, at)| {
        let trailers: Vec<Field> = if chunks.is_some() { trailers } else { Vec::new() };
        Body { bytes, chunks, trailers, at }
    })
}

pub(crate) fn any_exchange() -> impl Strategy<Value = (Said, Said)> {
    let head = || prop::collection::vec((any_name(), any_value()), 0..12);
    let cuts = || prop::collection::vec(any::<Index>(), 0..6);
    let start = ("(POST|PUT|PATCH|DELETE|PURGE)", "/[a-zA-Z0-9._~!$&'()*+,;=:@/-]{0,20}(\\?[a-z0-9=&%/?-]{0,12})?");
    let request = (start, head(), any_body(), cuts()).prop_map(|((method, target), mut head, body, cuts)| {
        head.insert(0, ("Host".to_owned(), b"model".to_vec()));
        // a sender of `TE` names it in `Connection` (RFC 9110, 10.1.4)
        head.push(("TE".to_owned(), b"trailers".to_vec()));
        head.push(("Connection".to_owned(), b"TE".to_vec()));
        say(format!("{method} {target} HTTP/1.1"), head, body, &cuts)
    });
    let status = prop::sample::select(vec![200_u16, 201, 206, 299, 301, 400, 404, 422, 500, 503]);
    let response = (status, "[A-Z][A-Za-z ]{0,10}[a-z]", head(), any_body(), cuts())
        .prop_map(|(status, reason, head, body, cuts)| say(format!("HTTP/1.1 {status} {reason}"), head, body, &cuts));
    (request, response)
}
