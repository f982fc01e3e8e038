//! Answers in pieces: a thread writes the text while the client reads it, so that no answer is one long string in memory.
//!
//! At most [`WAITING`] pieces of [`PIECE_BYTES`] wait for a client. One that takes nothing for [`PATIENCE`] is cut off, visibly:
//! its answer ends without an end. A short answer is one piece, with its length.

use std::time::Duration;
use std::{fmt, io};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::poll_fn;
use http::header;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a piece is, about.
const PIECE_BYTES: usize = 64 * 1024;
/// How many pieces may wait for the client.
const WAITING: usize = 8;
/// For how long a client may take nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the thread hands over.
enum Piece {
    /// More follows.
    Part(Bytes),
    /// Nothing follows.
    Last(Bytes),
    /// The text cannot be made, for this reason.
    Failed(String),
}

/// Where the text is written to.
pub(super) struct PieceWriter {
    runtime: Handle,
    sender: mpsc::Sender<Piece>,
    text: Vec<u8>,
    patience: Duration,
}

/// The client left, or takes nothing.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client does not read its answer")]
struct ClientGone;

impl PieceWriter {
    /// A writer for a thread that may block, and the reader of what it writes.
    pub(super) fn new() -> (Self, PieceReader) {
        Self::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> (Self, PieceReader) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { runtime: Handle::current(), sender, text: Vec::new(), patience }, PieceReader(receiver))
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.text.extend_from_slice(bytes);
        if self.text.len() < PIECE_BYTES {
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        self.send(Piece::Part(text.into()))
    }

    fn send(&self, piece: Piece) -> Result<(), ClientGone> {
        let piece = match self.sender.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(piece)) => piece,
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(ClientGone),
        };
        let sent = self.runtime.block_on(async { timeout(self.patience, self.sender.send(piece)).await });
        sent.map_err(|_| ClientGone)?.map_err(|_| ClientGone)
    }

    /// Sends the rest, or why there is none.
    pub(super) fn finish(mut self, result: Result<(), String>) {
        let text = std::mem::take(&mut self.text).into();
        // a client that is gone needs no answer
        let _ = self.send(result.map_or_else(Piece::Failed, |()| Piece::Last(text)));
    }
}

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for PieceWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// The pieces as they come.
pub(super) struct PieceReader(mpsc::Receiver<Piece>);

impl PieceReader {
    /// The answer, once its first piece has come.
    ///
    /// # Errors
    ///
    /// The reason, if nothing of it could be made.
    pub(super) async fn response(mut self, kind: &'static str) -> Result<Response, String> {
        let first = match self.0.recv().await {
            Some(Piece::Part(first)) => first,
            Some(Piece::Last(whole)) => return Ok(([(header::CONTENT_TYPE, kind)], whole).into_response()),
            Some(Piece::Failed(reason)) => return Err(reason),
            None => return Err("making the answer panicked; see the log".to_owned()),
        };
        let mut waiting = Some(Piece::Part(first));
        let mut is_over = false;
        let frames = poll_fn(move |cx| {
            if is_over {
                return std::task::Poll::Ready(None);
            }
            let next = match waiting.take() {
                Some(first) => Some(first),
                None => std::task::ready!(self.0.poll_recv(cx)),
            };
            is_over = !matches!(next, Some(Piece::Part(_)));
            std::task::Poll::Ready(Some(match next {
                Some(Piece::Part(bytes) | Piece::Last(bytes)) => Ok(Frame::data(bytes)),
                Some(Piece::Failed(reason)) => Err(io::Error::other(reason)),
                None => Err(io::Error::other("the answer was given up")),
            }))
        });
        Ok(([(header::CONTENT_TYPE, kind)], Body::new(StreamBody::new(frames))).into_response())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn answer(make: impl FnOnce(&mut PieceWriter) -> Result<(), String> + Send + 'static) -> Result<Response, String> {
        let (mut writer, reader) = PieceWriter::new();
        tokio::task::spawn_blocking(move || {
            let result = make(&mut writer);
            writer.finish(result);
        });
        reader.response("text/plain").await
    }

    #[tokio::test]
    async fn short_texts_come_whole_and_long_ones_in_pieces() {
        let short = answer(|out| out.write_all(b"short").map_err(|e| e.to_string())).await.unwrap();
        assert_eq!(http_body::Body::size_hint(short.body()).exact(), Some(5));
        let long =
            answer(|out| (0..2_000_000).try_for_each(|_| out.write_all(b"abcde")).map_err(|e| e.to_string())).await.unwrap();
        let mut body = long.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() < PIECE_BYTES + 5);
            bytes += piece.len();
        }
        assert_eq!(bytes, 10_000_000);
    }

    #[tokio::test]
    async fn what_fails_is_told_before_the_first_piece_and_breaks_after_it() {
        assert_eq!(answer(|_| Err("no".to_owned())).await.err(), Some("no".to_owned()));
        let broken = answer(|out| {
            out.write_all(&[b'x'; 100_000]).map_err(|e| e.to_string())?;
            Err("no".to_owned())
        });
        assert!(broken.await.unwrap().into_body().collect().await.is_err());
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (mut writer, reader) = PieceWriter::with_patience(Duration::from_millis(50));
        let thread = tokio::task::spawn_blocking(move || {
            let mut pieces = 0;
            while writer.write_all(&[b'x'; PIECE_BYTES]).is_ok() {
                pieces += 1;
            }
            pieces
        });
        let response = reader.response("text/plain").await.unwrap();
        assert_eq!(thread.await.unwrap(), WAITING + 1, "one was taken");
        assert!(response.into_body().collect().await.is_err(), "and the answer has no end");
    }
}
