//! The reader of a connection, by the kind of its downstream.

use crate::call::{CallReader, CallSink};
use crate::http1::Http1Reader;
use crate::http2::Http2Reader;
use crate::kind::DownstreamKind;
use crate::resp::RespReader;
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// Reads a connection of some kind.
#[derive(Debug)]
pub(crate) enum Reader {
    Resp(Box<RespReader>),
    Http1(Box<Http1Reader>),
    Http2(Box<Http2Reader>),
}

impl Reader {
    pub(crate) fn of(kind: DownstreamKind) -> Self {
        match kind {
            DownstreamKind::Redis => Self::Resp(Box::default()),
            DownstreamKind::Http => Self::Http1(Box::default()),
            DownstreamKind::Grpc => Self::Http2(Box::default()),
        }
    }
}

impl CallReader for Reader {
    fn client(&mut self, bytes: &[u8], now: Stamp, in_flight: u64, sink: &mut impl CallSink) -> Result<(), Unread> {
        match self {
            Self::Resp(reader) => reader.client(bytes, now, in_flight, sink),
            Self::Http1(reader) => reader.client(bytes, now, in_flight, sink),
            Self::Http2(reader) => reader.client(bytes, now, in_flight, sink),
        }
    }

    fn server(&mut self, bytes: &[u8], now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        match self {
            Self::Resp(reader) => reader.server(bytes, now, sink),
            Self::Http1(reader) => reader.server(bytes, now, sink),
            Self::Http2(reader) => reader.server(bytes, now, sink),
        }
    }

    fn end(&mut self, now: Stamp, sink: &mut impl CallSink) {
        match self {
            Self::Resp(reader) => reader.end(now, sink),
            Self::Http1(reader) => reader.end(now, sink),
            Self::Http2(reader) => reader.end(now, sink),
        }
    }

    fn is_waiting(&self) -> bool {
        match self {
            Self::Resp(reader) => reader.is_waiting(),
            Self::Http1(reader) => reader.is_waiting(),
            Self::Http2(reader) => reader.is_waiting(),
        }
    }
}
