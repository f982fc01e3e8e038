//! Exports that were refused for good: each is counted by its cause, the first of each cause is logged, and what the latest one had is
//! kept for the diagnosis. An exporter drops what is refused and seldom says so.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use lapwing_metrics::{Counter, Counters};

/// The most characters of a detail: it quotes what an exporter sent.
const DETAIL: usize = 80;

/// Why an export was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// Its content type is no form of OTLP.
    ContentType,
    /// It is compressed in a way that is not read.
    ContentEncoding,
    /// It is larger than `attribution.otlp_max_body`, or has more elements than are decoded.
    TooLarge,
    /// It cannot be decoded.
    Undecodable,
    /// It did not come in time.
    TooSlow,
    /// It was sent to a path, or to a port, that is none of OTLP's.
    WrongPath,
}

impl RefusalCause {
    /// How many causes there are.
    pub const COUNT: usize = 6;

    /// All causes, in the order of their places.
    pub const ALL: [Self; Self::COUNT] =
        [Self::ContentType, Self::ContentEncoding, Self::TooLarge, Self::Undecodable, Self::TooSlow, Self::WrongPath];

    /// Where it is counted.
    #[must_use]
    pub const fn counter(self) -> Counter {
        match self {
            Self::ContentType => Counter::OtlpContentType,
            Self::ContentEncoding => Counter::OtlpContentEncoding,
            Self::TooLarge => Counter::OtlpTooLarge,
            Self::Undecodable => Counter::OtlpUndecodable,
            Self::TooSlow => Counter::OtlpTooSlow,
            Self::WrongPath => Counter::OtlpWrongPath,
        }
    }

    /// The one change by which such exports are taken.
    #[must_use]
    pub const fn change(self) -> &'static str {
        match self {
            Self::ContentType => {
                "let the exporter send protobuf or JSON: OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or grpc to the port of otlp_grpc"
            }
            Self::ContentEncoding => {
                "let the exporter send gzip or nothing compressed: OTEL_EXPORTER_OTLP_COMPRESSION=gzip or none"
            }
            Self::TooLarge => {
                "raise attribution.otlp_max_body, or let the exporter send less at once: OTEL_BSP_MAX_EXPORT_BATCH_SIZE=128"
            }
            Self::Undecodable => {
                "look at what is sent to these ports: OTLP of an OpenTelemetry SDK or collector is read, in protobuf or JSON"
            }
            Self::TooSlow => "look at the way from the exporter to Lapwing, or let it send less at once",
            Self::WrongPath => {
                "send OTLP over gRPC to the port of otlp_grpc, and over HTTP to that of otlp_http with the path /v1/traces (OTEL_EXPORTER_OTLP_ENDPOINT, which is without a path, adds it)"
            }
        }
    }

    /// What is wrong with it, after "an export was refused: ".
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::ContentType => "its content type is no form of OTLP",
            Self::ContentEncoding => "it is compressed in a way that is not read",
            Self::TooLarge => "it is too large",
            Self::Undecodable => "it cannot be decoded",
            Self::TooSlow => "it did not come in time",
            Self::WrongPath => "it was sent to a path or a port that is none of OTLP's",
        }
    }
}

/// Whether a request to this path, which is none of the receiver's, is meant as an export of telemetry. Probes for health are not.
pub(crate) fn is_export(path: &str) -> bool {
    path == "/"
        || path.starts_with("/opentelemetry.")
        || ["/traces", "/metrics", "/logs", "/spans"].iter().any(|end| path.ends_with(end))
}

/// The refused exports of a process.
#[derive(Debug, Default)]
pub struct OtlpRefusals {
    latest: Mutex<[Option<Box<str>>; RefusalCause::COUNT]>,
    is_logged: [AtomicBool; RefusalCause::COUNT],
}

impl OtlpRefusals {
    /// Counts a refused export, of which `detail` says what it had.
    pub(crate) fn note(&self, cause: RefusalCause, detail: &str, counters: &Counters) {
        counters.bump(Counter::OtlpMalformed);
        counters.bump(cause.counter());
        let detail: Box<str> =
            detail.chars().take(DETAIL).map(|char| if char.is_ascii_graphic() || char == ' ' { char } else { '?' }).collect();
        if !self.is_logged[cause as usize].swap(true, Relaxed) {
            let (reason, help) = (cause.what(), cause.change());
            tracing::warn!(
                reason,
                had = &*detail,
                help,
                "an OTLP export was refused, so its telemetry is missing; further ones are only counted"
            );
        }
        self.latest.lock()[cause as usize] = Some(detail);
    }

    /// What the latest export refused for that cause had; `None` before the first.
    #[must_use]
    pub fn latest(&self, cause: RefusalCause) -> Option<String> {
        self.latest.lock()[cause as usize].as_deref().map(ToOwned::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_each_cause_is_kept_within_bounds() {
        let (refusals, counters) = (OtlpRefusals::default(), Counters::default());
        assert_eq!(refusals.latest(RefusalCause::ContentEncoding), None);
        refusals.note(RefusalCause::ContentEncoding, "content-encoding deflate", &counters);
        refusals.note(RefusalCause::ContentEncoding, &format!("content-encoding \x1b[2J{}", "x".repeat(10_000)), &counters);
        let latest = refusals.latest(RefusalCause::ContentEncoding).unwrap();
        assert!(latest.starts_with("content-encoding ?[2Jxx") && latest.len() == DETAIL, "{latest}");
        assert_eq!((counters.get(Counter::OtlpContentEncoding), counters.get(Counter::OtlpMalformed)), (2, 2));
        let wrong = [
            "/",
            "/v1/traces",
            "/otlp/v1/traces",
            "/api/v2/spans",
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        ];
        assert!(wrong.into_iter().all(is_export) && !is_export("/grpc.health.v1.Health/Check") && !is_export("/healthz"));
        for cause in RefusalCause::ALL {
            assert_eq!(RefusalCause::ALL[cause as usize], cause);
            assert_eq!(cause.counter().row().metric, "lapwing_otlp_requests");
        }
    }
}
