//! Why a client's connection failed, as it is counted.

use std::error::Error;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::meter::SocketMeter;
use lapwing_metrics::Counter;

/// What a client did not do in time. It is inside the [`io::Error`] that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientTimedOut {
    /// It did not complete the head of a request.
    #[error("the head was not complete within client_header_timeout")]
    Head,
    /// It did not take the bytes of a response.
    #[error("the client took no bytes for client_stall_timeout")]
    Write,
}

/// Returns the counter for a connection that ended with `error`.
pub(crate) fn reason(error: &(dyn Error + 'static), meter: &SocketMeter) -> Counter {
    let io = std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref::<io::Error>());
    if let Some(io) = io {
        return match io.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(ClientTimedOut::Head) => Counter::FailedSlowHead,
            Some(ClientTimedOut::Write) => Counter::FailedSlowReader,
            None => Counter::FailedBroken,
        };
    }
    match error.downcast_ref::<hyper::Error>() {
        Some(_) if meter.is_head_too_large.load(Relaxed) => Counter::FailedHeadTooLarge,
        Some(_) if meter.is_multiplexed.load(Relaxed) => Counter::FailedHttp2,
        Some(error) if error.is_parse_too_large() => Counter::FailedHeadTooLarge,
        Some(error) if error.is_parse() => Counter::FailedMalformedHead,
        Some(error) if error.is_incomplete_message() => Counter::FailedBroken,
        _ => Counter::FailedOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_told_from_breaks() {
        let of = |error: io::Error| reason(&error, &SocketMeter::default());
        assert_eq!(of(io::Error::new(io::ErrorKind::TimedOut, ClientTimedOut::Head)), Counter::FailedSlowHead);
        assert_eq!(of(io::Error::new(io::ErrorKind::TimedOut, ClientTimedOut::Write)), Counter::FailedSlowReader);
        assert_eq!(of(io::ErrorKind::ConnectionReset.into()), Counter::FailedBroken);
        assert_eq!(reason(&std::fmt::Error, &SocketMeter::default()), Counter::FailedOther);
    }
}
