//! Error texts that quote a peer are cut: a peer does not decide how long an answer or a log line is.

use std::fmt::Display;

use http::HeaderMap;
use tonic::Status;

/// The most bytes of an error text in an answer or a log line.
pub const MAX_ERROR_TEXT: usize = 1024;

const GRPC_MESSAGE: &str = "grpc-message";

/// Returns `text`, cut to at most `most` bytes (at least 3) at a character's boundary. A cut text ends in `…`.
#[must_use]
pub fn excerpt(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

/// Returns the text of `error`, cut to [`MAX_ERROR_TEXT`].
#[must_use]
pub fn error_text(error: &(impl Display + ?Sized)) -> String {
    excerpt(error.to_string(), MAX_ERROR_TEXT)
}

/// Cuts the message of a gRPC answer's head to [`MAX_ERROR_TEXT`]: tonic quotes fields of the request in some.
pub fn cut_grpc_message(headers: &mut HeaderMap) {
    if headers.get(GRPC_MESSAGE).is_none_or(|message| message.len() <= MAX_ERROR_TEXT) {
        return;
    }
    let cut = Status::from_header_map(headers).map(|status| Status::new(status.code(), error_text(status.message())));
    if cut.is_none_or(|status| status.add_header(headers).is_err()) {
        headers.remove(GRPC_MESSAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_message_is_cut_as_text() {
        let message = |text: &str| {
            let mut headers = Status::unimplemented(text).into_http::<()>().headers().clone();
            cut_grpc_message(&mut headers);
            let status = Status::from_header_map(&headers).unwrap();
            assert_eq!(status.code(), tonic::Code::Unimplemented);
            status.message().to_owned()
        };
        assert_eq!(message("short: é"), "short: é");
        for text in ["x".repeat(60_000), "é %".repeat(20_000)] {
            let cut = message(&text);
            assert!(cut.len() <= MAX_ERROR_TEXT && cut.len() > MAX_ERROR_TEXT - 8, "{}", cut.len());
            assert!(text.starts_with(cut.trim_end_matches('…')));
        }
    }

    #[test]
    fn a_text_is_cut_at_a_boundary() {
        assert_eq!(excerpt("short".into(), MAX_ERROR_TEXT), "short");
        for text in ["x".repeat(60_000), "é".repeat(30_000), format!("x{}", "🐦".repeat(20_000))] {
            let cut = excerpt(text.clone(), MAX_ERROR_TEXT);
            assert!(cut.len() <= MAX_ERROR_TEXT && cut.len() > MAX_ERROR_TEXT - 4, "{}", cut.len());
            assert!(text.starts_with(cut.trim_end_matches('…')));
        }
    }
}
