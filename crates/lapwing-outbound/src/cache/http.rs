//! One connection to an HTTP store: which requests are answered from memory, which pass on, and what their responses and writes mean for
//! what is kept. It moves no bytes itself.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};

use super::figures::NotKept;
use super::kept_http::{AskedRequest, KeptAnswers, ListedRequest, RequestLook};
use super::turn::{Outgoing, Turn};
use super::versions::Written;
use crate::http1::{HeadBuffer, MAX_FIELDS, PassingMessageBody};
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// The longest request that is held.
const MAX_REQUEST: usize = 256 << 10;
/// Requests without a response that are remembered.
const MAX_OPEN: usize = 256;

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct HttpConversation {
    head: HeadBuffer,
    /// What came of a request that is not passed on yet.
    held: Vec<u8>,
    body: Option<RequestBody>,
    open: VecDeque<OpenRequest>,
    response_head: HeadBuffer,
    response: Option<ResponseBody>,
    /// It is passed on untouched.
    is_untouched: bool,
}

/// The body of a request that is on its way.
#[derive(Debug)]
struct RequestBody {
    framing: PassingMessageBody,
    /// The request, if it may be answered from memory, and its content.
    asking: Option<(ListedRequest, Vec<u8>)>,
}

/// A request without a response.
#[derive(Debug)]
struct OpenRequest {
    is_head: bool,
    is_connect: bool,
    kind: OpenKind,
}

#[derive(Debug)]
enum OpenKind {
    Plain,
    Read(Box<AskedRequest>),
    Write,
}

/// The body of a response that is on its way.
#[derive(Debug)]
struct ResponseBody {
    framing: PassingMessageBody,
    status: StatusCode,
    headers: HeaderMap,
    /// Its content, unless it is too large.
    content: Option<Vec<u8>>,
}

impl HttpConversation {
    /// What came from the client: what of it goes to the store, and what is answered.
    pub(crate) fn client(&mut self, bytes: &[u8], turn: Turn, kept: &mut KeptAnswers, out: &mut Outgoing) {
        let mut left = bytes;
        while !left.is_empty() && !self.is_untouched {
            match self.take(left, turn, kept, out) {
                Ok(taken) => left = &left[taken..],
                Err(_) => self.leave(turn.now, kept),
            }
        }
        if self.is_untouched {
            kept.block(turn.now);
            out.to_store.append(&mut self.held);
            out.to_store.extend_from_slice(left);
        }
    }

    /// Takes some of it.
    fn take(&mut self, bytes: &[u8], turn: Turn, kept: &mut KeptAnswers, out: &mut Outgoing) -> Result<usize, Unread> {
        let Some(body) = &mut self.body else {
            let (taken, is_whole) = self.head.read(bytes)?;
            self.held.extend_from_slice(&bytes[..taken]);
            if is_whole {
                match self.request(turn, kept) {
                    Ok(()) => self.end_of_body(turn, kept, out),
                    Err(_) => self.leave(turn.now, kept),
                }
            }
            return Ok(taken);
        };
        let content = body.asking.as_mut().map(|(_, content)| content);
        let taken = match content {
            Some(content) => body.framing.read(bytes, |piece| content.extend_from_slice(piece))?,
            None => body.framing.read(bytes, |_| {})?,
        };
        if body.asking.is_some() {
            self.held.extend_from_slice(&bytes[..taken]);
            if self.held.len() > MAX_REQUEST {
                body.asking = None;
                kept.figures.refuse(NotKept::TooLong);
                self.open.push_back(OpenRequest { is_head: false, is_connect: false, kind: OpenKind::Plain });
                out.to_store.append(&mut self.held);
            }
        } else {
            out.to_store.extend_from_slice(&bytes[..taken]);
        }
        self.end_of_body(turn, kept, out);
        Ok(taken)
    }

    /// The head of a request has come.
    fn request(&mut self, turn: Turn, kept: &mut KeptAnswers) -> Result<(), Unread> {
        let head = self.head.take();
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        if !request.parse(&head).is_ok_and(|parsed| parsed.is_complete()) {
            return Err(Unread::Malformed);
        }
        if self.open.len() >= MAX_OPEN {
            return Err(Unread::TooMany);
        }
        let framing = PassingMessageBody::of(request.headers, PassingMessageBody::Length(0))?;
        let method = request.method.unwrap_or_default();
        let (is_head, is_connect) = (method == "HEAD", method == "CONNECT");
        let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS");
        let is_feast = crate::http1::FeastCall::is_one(method, request.path.unwrap_or_default());
        let asking = self.asking(&request, turn, kept);
        if asking.is_none() {
            let kind = if is_safe || is_feast { OpenKind::Plain } else { OpenKind::Write };
            if matches!(kind, OpenKind::Write) {
                kept.begin_write();
            }
            self.open.push_back(OpenRequest { is_head, is_connect, kind });
        }
        self.body = Some(RequestBody { framing, asking: asking.map(|asking| (asking, Vec::new())) });
        Ok(())
    }

    /// The request, if it may be answered from memory.
    fn asking(&self, request: &httparse::Request<'_, '_>, turn: Turn, kept: &mut KeptAnswers) -> Option<ListedRequest> {
        let head = head_of(request)?;
        let is_plain =
            request.version == Some(1) && !["connection", "expect", "upgrade"].iter().any(|name| asks_more(head.headers(), name));
        let listed = match kept.listed(head) {
            Ok(listed) => listed,
            Err(is_read) => {
                if is_read {
                    kept.figures.refuse(NotKept::Unlisted);
                }
                return None;
            }
        };
        let refused = match self.open.is_empty() {
            _ if !is_plain => Some(NotKept::Form),
            false => Some(NotKept::Behind),
            true if turn.room == 0 => Some(NotKept::Backlog),
            true => None,
        };
        if let Some(why) = refused {
            kept.figures.refuse(why);
            return None;
        }
        Some(listed)
    }

    /// If the request has come whole, it is answered or passed on.
    fn end_of_body(&mut self, turn: Turn, kept: &mut KeptAnswers, out: &mut Outgoing) {
        let Some(body) = &mut self.body else { return };
        let is_done = body.framing.is_done();
        if body.asking.is_none() {
            out.to_store.append(&mut self.held);
        }
        if !is_done {
            return;
        }
        let asking = body.asking.take();
        self.body = None;
        let Some((request, content)) = asking else { return };
        let kind = match kept.look(&request, Bytes::from(content), turn.now) {
            RequestLook::Answer(answer) => {
                out.answers.extend_from_slice(&answer);
                self.held.clear();
                return;
            }
            RequestLook::Ask(asked) => OpenKind::Read(asked),
            RequestLook::Own => OpenKind::Plain,
        };
        self.open.push_back(OpenRequest { is_head: false, is_connect: false, kind });
        out.to_store.append(&mut self.held);
    }

    /// What came from the store, before it is handed on.
    pub(crate) fn server(&mut self, bytes: &[u8], now: Stamp, kept: &mut KeptAnswers) {
        let mut left = bytes;
        while !left.is_empty() && !self.is_untouched {
            match self.take_response(left, now, kept) {
                Ok(taken) => left = &left[taken..],
                Err(_) => self.leave(now, kept),
            }
        }
    }

    fn take_response(&mut self, bytes: &[u8], now: Stamp, kept: &mut KeptAnswers) -> Result<usize, Unread> {
        let Some(response) = &mut self.response else {
            let (taken, is_whole) = self.response_head.read(bytes)?;
            if is_whole {
                self.response_head(now, kept)?;
            }
            return Ok(taken);
        };
        let (content, most) = (&mut response.content, kept.most());
        let taken = response.framing.read(bytes, |piece| {
            if content.as_ref().is_some_and(|content| content.len() + piece.len() > most) {
                *content = None;
            }
            if let Some(content) = content {
                content.extend_from_slice(piece);
            }
        })?;
        self.end_of_response(now, kept);
        Ok(taken)
    }

    fn response_head(&mut self, now: Stamp, kept: &mut KeptAnswers) -> Result<(), Unread> {
        let head = self.response_head.take();
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        if !response.parse(&head).is_ok_and(|parsed| parsed.is_complete()) {
            return Err(Unread::Malformed);
        }
        let status = StatusCode::from_u16(response.code.unwrap_or_default()).map_err(|_| Unread::Malformed)?;
        let Some(request) = self.open.front() else { return Err(Unread::Unasked) };
        if status.as_u16() == 101 || request.is_connect && status.is_success() {
            return Err(Unread::Upgraded);
        }
        if status.is_informational() {
            return Ok(());
        }
        let is_empty = request.is_head || matches!(status.as_u16(), 204 | 304);
        let without = if is_empty { PassingMessageBody::Length(0) } else { PassingMessageBody::UntilEnd };
        let framing = if is_empty { without } else { PassingMessageBody::of(response.headers, without)? };
        let headers = fields_of(response.headers).unwrap_or_default();
        // one that ends with the connection may have been cut
        let content = (framing != PassingMessageBody::UntilEnd).then(Vec::new);
        self.response = Some(ResponseBody { framing, status, headers, content });
        self.end_of_response(now, kept);
        Ok(())
    }

    fn end_of_response(&mut self, now: Stamp, kept: &mut KeptAnswers) {
        let Some(response) = self.response.take_if(|response| response.framing.is_done()) else { return };
        let Some(request) = self.open.pop_front() else { return };
        match request.kind {
            OpenKind::Plain => {}
            OpenKind::Write => kept.versions.end(Written::All),
            OpenKind::Read(asked) => {
                // what is too large is told from what was cut
                let content = response.content.or_else(|| Some(vec![0; kept.most().saturating_add(1)]));
                kept.answered(*asked, response.status, &response.headers, content, now);
            }
        }
    }

    /// The client sends nothing more: what is held goes on.
    pub(crate) fn client_ended(&mut self, out: &mut Outgoing) {
        out.to_store.append(&mut self.held);
    }

    /// From here on, the connection passes untouched.
    fn leave(&mut self, now: Stamp, kept: &mut KeptAnswers) {
        if !std::mem::replace(&mut self.is_untouched, true) {
            kept.figures.untouched += 1;
            self.end(now, kept);
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self, now: Stamp, kept: &mut KeptAnswers) {
        for request in std::mem::take(&mut self.open) {
            if matches!(request.kind, OpenKind::Write) {
                kept.versions.cut(Written::All, now);
            }
        }
    }
}

/// Whether a field asks for more than an answer: `Connection: keep-alive` does not.
fn asks_more(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(name).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

/// The head of a request; `None` if it is not understood.
fn head_of(request: &httparse::Request<'_, '_>) -> Option<Request<()>> {
    let mut head = Request::builder().method(request.method?).uri(request.path?).body(()).ok()?;
    *head.headers_mut() = fields_of(request.headers)?;
    Some(head)
}

fn fields_of(fields: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        headers.append(HeaderName::from_bytes(field.name.as_bytes()).ok()?, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(headers)
}
