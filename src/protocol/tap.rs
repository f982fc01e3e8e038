//! Reads one exchange as its bytes pass, piece by piece, in constant memory: model, work, pace, and what the server
//! reports in the body. It never holds bytes back, keeps none but short names, and never fails: what cannot be read is
//! not known.

use http::{HeaderMap, Method};

use crate::ledger::Ledger;

/// How traffic is read: built once from the configuration, shared by all requests.
#[derive(Debug, Default)]
pub struct Protocols {}

impl Protocols {
    /// A reader for a request with this head; `None` where there is nothing to read in its bodies. `path` has no query.
    #[must_use]
    pub fn open(&self, _method: &Method, _path: &str, _headers: &HeaderMap) -> Option<Tap> {
        None
    }
}

/// One exchange that is being read.
#[derive(Debug)]
pub struct Tap {}

impl Tap {
    /// The next piece of the request's body.
    pub fn request(&mut self, _bytes: &[u8]) {}

    /// The response's head.
    pub fn response_head(&mut self, _status: u16, _headers: &HeaderMap) {}

    /// The next piece of the response's body, read `at_ns` after the request's start.
    pub fn response(&mut self, _bytes: &[u8], _at_ns: u64) {}

    /// Writes what was read into the ledger: work, generation, server, and reports of the body. Gives the model's name,
    /// where the bodies name one.
    pub fn close(&mut self, _ledger: &mut Ledger) -> Option<&str> {
        None
    }
}
