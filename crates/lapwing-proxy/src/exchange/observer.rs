//! Who observes the traffic.

use http::{HeaderMap, Method};

use lapwing_ledger::Ledger;
use lapwing_protocol::ExchangeReader;

/// Observes the traffic. It is called on the request path: it must be quick, and must not wait.
pub trait Observer: Send + Sync {
    /// Names route and model of a request by its head. Returns a reader of the bodies if there is anything to read.
    fn request(&self, method: &Method, path: &str, headers: &HeaderMap, ledger: &mut Ledger) -> Option<ExchangeReader>;
    /// Returns a reader of an answer of which nothing else is read, that looks for an error; `None` if bodies are not to be read.
    fn error_reader(&self) -> Option<ExchangeReader> {
        None
    }
    /// Reads the upstream's own reports in a response's head, or (`trailing`) in its trailers.
    fn response(&self, fields: &HeaderMap, trailing: bool, ledger: &mut Ledger);
    /// Names the model that the bodies name.
    fn model(&self, name: &str, ledger: &mut Ledger);
    /// Takes the closed ledger.
    fn closed(&self, ledger: Box<Ledger>);
}
