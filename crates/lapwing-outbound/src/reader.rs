//! The reader of a connection, by the kind of its downstream.

use crate::call::{CallReader, CallSink};
use crate::config::DownstreamKind;
use crate::resp::RespReader;
use crate::unread::Unread;
use lapwing_ledger::Stamp;

/// Reads a connection of some kind.
#[derive(Debug)]
pub(crate) enum Reader {
    Resp(Box<RespReader>),
}

impl Reader {
    pub(crate) fn of(kind: DownstreamKind) -> Self {
        match kind {
            DownstreamKind::Redis => Self::Resp(Box::default()),
        }
    }
}

impl CallReader for Reader {
    fn client(&mut self, bytes: &[u8], now: Stamp, in_flight: u64, sink: &mut impl CallSink) -> Result<(), Unread> {
        match self {
            Self::Resp(reader) => reader.client(bytes, now, in_flight, sink),
        }
    }

    fn server(&mut self, bytes: &[u8], now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread> {
        match self {
            Self::Resp(reader) => reader.server(bytes, now, sink),
        }
    }

    fn end(&mut self, now: Stamp, sink: &mut impl CallSink) {
        match self {
            Self::Resp(reader) => reader.end(now, sink),
        }
    }

    fn is_waiting(&self) -> bool {
        match self {
            Self::Resp(reader) => reader.is_waiting(),
        }
    }
}
