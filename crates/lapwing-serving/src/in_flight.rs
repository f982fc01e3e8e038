//! One inference request from arrival to answer, REST or gRPC. It is counted exactly once, with the outcome it ends with. Its deadline is
//! the timeout that the client sends (`grpc-timeout`, or the parameter `timeout` in microseconds), else the server's own.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::catalogue::CatalogueEntry;
use super::error::Outcome;
use super::error::RequestError;
use super::limits::Limits;
use super::metrics::StageTimes;
use lapwing_engine::clock;
use lapwing_ledger::Stamp;
use lapwing_model::service::{About, Answer, Call, Servable};
use lapwing_onnx::tensor::Tensor;
use lapwing_settings::Period;

/// A decoded request to a model.
#[derive(Debug)]
pub(crate) struct InferenceRequest {
    pub(crate) inputs: Vec<Tensor>,
    /// The names of the requested outputs; empty for all.
    pub(crate) outputs: Vec<String>,
    pub(crate) timeout: RequestTimeout,
}

/// A request that is being answered. If it is dropped before it ended, the client has disconnected: it is counted as cancelled.
#[derive(Debug)]
pub(crate) struct InFlightInference {
    entry: Arc<CatalogueEntry>,
    arrival: Stamp,
    ended: Option<Outcome>,
    _slot: OwnedSemaphorePermit,
}

impl InFlightInference {
    /// Starts a request that arrived at `arrival`, and counts it.
    ///
    /// # Errors
    ///
    /// [`RequestError::Busy`] where as many requests are in flight as the limit allows.
    pub(crate) fn begin(
        entry: &Arc<CatalogueEntry>,
        arrival: Stamp,
        slots: &Arc<Semaphore>,
        limits: &Limits,
    ) -> Result<Self, RequestError> {
        let entry = Arc::clone(entry);
        entry.tallies.begin();
        match Arc::clone(slots).try_acquire_owned() {
            Ok(permit) => Ok(Self { entry, arrival, ended: None, _slot: permit }),
            Err(_) => {
                entry.tallies.end(Outcome::Full);
                Err(RequestError::Busy { limit: limits.max_in_flight })
            }
        }
    }

    /// The model's metadata.
    pub(crate) fn about(&self) -> &About {
        self.entry.model.about()
    }

    /// The model.
    pub(crate) fn model(&self) -> Arc<dyn Servable> {
        Arc::clone(&self.entry.model)
    }

    /// Calls the model, and waits for its answer until the request's deadline.
    pub(crate) async fn call(&self, asked: InferenceRequest, limits: &Limits) -> Result<Answer, RequestError> {
        let deadline = asked.timeout.deadline(self.arrival, limits.timeout);
        // the engine has its own clock, so the deadline is passed as the remaining time
        let left = deadline.map(|deadline| clock::Stamp::now().plus(deadline.since(Stamp::now())));
        let call = Call { inputs: asked.inputs, outputs: asked.outputs, deadline: left };
        Ok(before(deadline, self.entry.model.infer(call)).await??)
    }

    /// Counts the request as answered.
    pub(crate) fn answered(mut self, spent: &StageTimes, answer: &Answer) {
        self.entry.tallies.answered(spent, &answer.batch);
        self.ended = Some(Outcome::Ok);
    }

    /// Counts the request as failed, by the reason.
    pub(crate) fn failed(mut self, error: &RequestError) {
        self.ended = Some(error.outcome());
    }
}

impl Drop for InFlightInference {
    fn drop(&mut self) {
        self.entry.tallies.end(self.ended.unwrap_or(Outcome::Cancelled));
    }
}

/// The timeout that a client asks for, in nanoseconds from the request's arrival; `None` if it asks for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTimeout(Option<u64>);

impl RequestTimeout {
    /// From Triton's parameter `timeout`, in microseconds; 0 means no timeout.
    pub(crate) fn from_micros(micros: u64) -> Self {
        Self((micros > 0).then(|| micros.saturating_mul(1000)))
    }

    /// From the header `grpc-timeout`: at most 8 digits and a unit.
    ///
    /// # Errors
    ///
    /// [`RequestError::Input`] if the header has another form.
    pub(crate) fn from_grpc_header(headers: &HeaderMap) -> Result<Self, RequestError> {
        let Some(value) = headers.get("grpc-timeout") else { return Ok(Self(None)) };
        let read = value.to_str().ok().and_then(grpc_timeout_ns);
        read.map(|ns| Self(Some(ns))).ok_or_else(|| {
            RequestError::Input(format!("grpc-timeout: {value:?} is not 1 to 8 digits and one of H, M, S, m, u, n"))
        })
    }

    /// The shorter of two timeouts.
    pub(crate) fn shorter_of(self, other: Self) -> Self {
        Self(self.0.into_iter().chain(other.0).min())
    }

    /// The deadline of a request that arrived at `arrival`; `default` applies if the client asks for no timeout.
    pub(crate) fn deadline(self, arrival: Stamp, default: Option<Period>) -> Option<Stamp> {
        self.0.or_else(|| default.map(Period::as_nanos)).map(|ns| arrival.plus(ns))
    }
}

fn grpc_timeout_ns(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let unit_ns: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    Some(digits.parse::<u64>().ok()?.saturating_mul(unit_ns))
}

/// Waits for `answer` until the deadline. At the deadline the future is dropped; work that it started elsewhere continues.
///
/// # Errors
///
/// [`RequestError::Late`] at the deadline.
pub(crate) async fn before<T>(deadline: Option<Stamp>, answer: impl Future<Output = T>) -> Result<T, RequestError> {
    let Some(deadline) = deadline else { return Ok(answer.await) };
    let left = Duration::from_nanos(deadline.since(Stamp::now()));
    tokio::time::timeout(left, answer).await.map_err(|_| RequestError::Late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_from_grpc_header_are_read_and_others_refused() {
        assert_eq!(grpc_timeout_ns("1H"), Some(3_600_000_000_000));
        assert_eq!(grpc_timeout_ns("99999999n"), Some(99_999_999));
        assert_eq!((grpc_timeout_ns("5m"), grpc_timeout_ns("5M")), (Some(5_000_000), Some(300_000_000_000)));
        assert_eq!((grpc_timeout_ns("7S"), grpc_timeout_ns("8u")), (Some(7_000_000_000), Some(8_000)));
        for bad in ["", "S", "5", "5s", "123456789n", "+1S", "-1S", "1.5S", "1 S", "é", "1é"] {
            assert_eq!(grpc_timeout_ns(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_shorter_timeout_counts_and_the_servers_only_without_any() {
        let arrival = Stamp::now();
        let (long, short) = (RequestTimeout::from_micros(20), RequestTimeout(Some(7)));
        assert_eq!(long.shorter_of(short).deadline(arrival, Some(Period::from_secs(1))), Some(arrival.plus(7)));
        assert_eq!(RequestTimeout::from_micros(0).shorter_of(long).deadline(arrival, None), Some(arrival.plus(20_000)));
        assert_eq!(RequestTimeout::default().deadline(arrival, Some(Period::from_millis(1))), Some(arrival.plus(1_000_000)));
        assert_eq!(RequestTimeout::default().deadline(arrival, None), None);
    }
}
