//! HTTP/1.1, read while it passes: which requests a client sends, and which responses answer them.
//!
//! A head is gathered until it has come whole, within a bound; of bodies nothing is kept.

mod feast;
mod framing;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(crate) use self::feast::FeastCall;
pub(crate) use self::framing::{HeadBuffer, PassingMessageBody};
use crate::call::{Asked, CallEnd, CallLookups, CallReader, CallSink, EndedCall, Wait};
use crate::name::CallName;
use crate::unread::Unread;
use lapwing_ledger::{Stamp, TraceContext};

/// Requests of one connection whose responses have not come.
const MAX_OPEN: usize = 256;
/// The most fields of a head.
pub(crate) const MAX_FIELDS: usize = 128;

/// Pairs the responses of a connection with its requests.
#[derive(Debug, Default)]
pub(crate) struct Http1Reader {
    request_head: HeadBuffer,
    request_body: Option<PassingMessageBody>,
    /// When the first byte of the request came whose head is being gathered, and how many requests were in flight.
    began: Option<(Stamp, Asked)>,
    response_head: HeadBuffer,
    response_body: Option<(PassingMessageBody, u16)>,
    /// When the latest bytes of a response were handed on.
    answered: Option<Stamp>,
    open: VecDeque<OpenRequest>,
}

/// A request whose response has not come whole.
#[derive(Debug)]
struct OpenRequest {
    name: CallName,
    began: Stamp,
    asked: Asked,
    is_head: bool,
    is_connect: bool,
    feast: Option<Box<FeastCall>>,
}

impl CallReader for Http1Reader {
    fn client(&mut self, mut bytes: &[u8], now: Stamp, in_flight: u64, _: &mut impl CallSink) -> Result<(), Unread> {
        while !bytes.is_empty() {
            if let Some(body) = &mut self.request_body {
                let mut feast = self.open.back_mut().and_then(|request| request.feast.as_mut());
                let taken = body.read(bytes, |content| feast.iter_mut().for_each(|feast| feast.request(content)))?;
                bytes = &bytes[taken..];
                if body.is_done() {
                    self.request_body = None;
                }
                continue;
            }
            let (taken, is_whole) = self.request_head.read(bytes)?;
            bytes = &bytes[taken..];
            if !self.request_head.is_empty() {
                self.began.get_or_insert((now, Asked::of(in_flight)));
            }
            if is_whole {
                self.request()?;
            }
        }
        Ok(())
    }

    fn server(&mut self, mut bytes: &[u8], now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        self.answered = Some(now);
        while !bytes.is_empty() {
            if let Some((body, status)) = &mut self.response_body {
                let status = *status;
                let mut feast = self.open.front_mut().and_then(|request| request.feast.as_mut());
                let taken = body.read(bytes, |content| feast.iter_mut().for_each(|feast| feast.response(content)))?;
                bytes = &bytes[taken..];
                if body.is_done() {
                    self.response_body = None;
                    self.end_first(status, now, sink);
                }
                continue;
            }
            let (taken, is_whole) = self.response_head.read(bytes)?;
            bytes = &bytes[taken..];
            if is_whole {
                self.response(now, sink)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, now: Stamp, sink: &mut impl CallSink) {
        // the end of the connection is that of such a body
        if let Some((PassingMessageBody::UntilEnd, status)) = self.response_body.take() {
            self.end_first(status, self.answered.unwrap_or(now), sink);
        }
        while let Some(request) = self.open.pop_front() {
            request.end(CallEnd::Cut, now, sink);
        }
    }

    fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Http1Reader {
    /// The head of a request has come.
    fn request(&mut self) -> Result<(), Unread> {
        let (began, counted) = self.began.take().unwrap_or((Stamp::default(), Asked::Outside));
        let head = self.request_head.take();
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        if !request.parse(&head).is_ok_and(|parsed| parsed.is_complete()) {
            return Err(Unread::Malformed);
        }
        if self.open.len() >= MAX_OPEN {
            return Err(Unread::TooMany);
        }
        let (method, path) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        let body = PassingMessageBody::of(request.headers, PassingMessageBody::Length(0))?;
        let parent = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("traceparent"));
        let context = parent.and_then(|field| TraceContext::parse(field.value));
        let feast = FeastCall::of(method, path);
        self.open.push_back(OpenRequest {
            name: CallName::of_http(if feast.is_some() { FeastCall::NAME } else { method }),
            began,
            asked: context.map_or(counted, |context| Asked::Trace(context.trace, context.span)),
            is_head: method == "HEAD",
            is_connect: method == "CONNECT",
            feast,
        });
        self.request_body = Some(body).filter(|body| !body.is_done());
        Ok(())
    }

    /// The head of a response has come.
    fn response(&mut self, now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        let head = self.response_head.take();
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        if !response.parse(&head).is_ok_and(|parsed| parsed.is_complete()) {
            return Err(Unread::Malformed);
        }
        let status = response.code.unwrap_or_default();
        let Some(request) = self.open.front() else { return Err(Unread::Unasked) };
        if status == 101 || request.is_connect && (200..300).contains(&status) {
            self.end_first(status, now, sink);
            return Err(Unread::Upgraded);
        }
        if status < 200 {
            return Ok(());
        }
        let is_empty = request.is_head || matches!(status, 204 | 304);
        let body = if is_empty {
            PassingMessageBody::Length(0)
        } else {
            PassingMessageBody::of(response.headers, PassingMessageBody::UntilEnd)?
        };
        if body.is_done() {
            self.end_first(status, now, sink);
        } else {
            self.response_body = Some((body, status));
        }
        Ok(())
    }

    /// The response to the first open request has come whole.
    fn end_first(&mut self, status: u16, now: Stamp, sink: &mut impl CallSink) {
        if let Some(request) = self.open.pop_front() {
            // what is not there is an answer
            let is_failed = status >= 400 && status != 404;
            request.end(if is_failed { CallEnd::Failed } else { CallEnd::Answered }, now, sink);
        }
    }
}

impl OpenRequest {
    fn end(self, end: CallEnd, now: Stamp, sink: &mut impl CallSink) {
        let Self { name, began, asked, feast, .. } = self;
        let keys = feast.as_ref().map_or(0, |feast| feast.keys());
        let lookups = match (end, &feast) {
            (CallEnd::Answered, Some(feast)) => feast.lookups(),
            _ => CallLookups::default(),
        };
        sink.ended(EndedCall { name, took_ns: Some(now.since(began)), end, keys, lookups });
        sink.waited(Wait { began, ended: now, asked });
    }
}
