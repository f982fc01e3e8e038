//! Load reports by ORCA (`proxy.respond_orca`): what a load balancer asks for with `endpoint-load-metrics-format`, in the forms that
//! Triton, vLLM, Envoy and gRPC know. One of the upstream's own stays as it is.
//!
//! A report has what is known and nothing else: requests and failures per second; the requests in flight over those that the upstream
//! works on at once, where that is inferred; and by name the mean time in the queue, in milliseconds, and the requests in flight.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};

use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters, EndpointLoad};

const FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");
const REPORT_BIN: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// The form that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadReportFormat {
    /// `JSON` and an object.
    Json,
    /// `TEXT` and names with values.
    Text,
    /// A message `xds.data.orca.v3.OrcaLoadReport` in base64.
    Binary,
}

impl LoadReportFormat {
    /// Every form.
    const ALL: [(Self, &'static str); 3] = [(Self::Json, "json"), (Self::Text, "text"), (Self::Binary, "bin")];

    /// The form that a request with this head asks for; `None` if it asks for none, or for one that is not known.
    pub(crate) fn asked(headers: &HeaderMap) -> Option<Self> {
        let asked = headers.get(FORMAT)?.as_bytes();
        Self::ALL.into_iter().find(|(_, name)| asked.eq_ignore_ascii_case(name.as_bytes())).map(|(format, _)| format)
    }

    /// A number above zero.
    pub(crate) const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The form with this number.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().map(|(format, _)| format).find(|format| format.code() == code)
    }

    /// Returns whether these fields have a report.
    pub(crate) fn is_in(fields: &HeaderMap) -> bool {
        fields.contains_key(&REPORT) || fields.contains_key(&REPORT_BIN)
    }

    /// Adds a report to a response's head or trailers, unless they have one.
    pub(crate) fn add(self, fields: &mut HeaderMap, counters: &Counters) {
        if Self::is_in(fields) {
            return;
        }
        let (load, slots) = (counters.load().get(), counters.load().slots(Stamp::now()));
        let report = OrcaLoadReport { load, in_flight: counters.get(Counter::InFlight), slots };
        let (name, text) = match self {
            Self::Json => (REPORT, report.json()),
            Self::Text => (REPORT, report.text()),
            Self::Binary => (REPORT_BIN, STANDARD.encode(report.message())),
        };
        if let Ok(value) = HeaderValue::try_from(text) {
            fields.append(name, value);
        }
    }
}

/// What a report says.
#[derive(Clone, Copy, Debug)]
struct OrcaLoadReport {
    load: Option<EndpointLoad>,
    in_flight: u64,
    /// How many requests the upstream works on at once.
    slots: Option<u32>,
}

impl OrcaLoadReport {
    /// The fields of the message that are known: number, name, value.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    fn fields(&self) -> impl Iterator<Item = (u8, &'static str, f64)> + use<> {
        let rates = self.load.map(|load| [(6, "rps_fractional", load.requests_per_s), (7, "eps", load.failures_per_s)]);
        let utilization = self.slots.map(|slots| (9, "application_utilization", self.in_flight as f64 / f64::from(slots)));
        rates.into_iter().flatten().chain(utilization)
    }

    /// The metrics that ORCA has no field for.
    #[allow(clippy::cast_precision_loss, reason = "the message has floating point only")]
    fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let queue_ms = self.load.and_then(|load| load.queue_ns).map(|ns| ("lapwing.queue_ms", ns / 1e6));
        [("lapwing.in_flight", self.in_flight as f64)].into_iter().chain(queue_ms)
    }

    fn json(&self) -> String {
        let mut text = String::from("JSON {");
        for (_, name, value) in self.fields() {
            let _ = write!(text, "\"{name}\": {value}, ");
        }
        text.push_str("\"named_metrics\": {");
        for (at, (name, value)) in self.named().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}\"{name}\": {value}");
        }
        text.push_str("}}");
        text
    }

    /// As Triton and vLLM write it.
    fn text(&self) -> String {
        let mut text = String::from("TEXT ");
        for (_, name, value) in self.fields() {
            let _ = write!(text, "{name}={value}, ");
        }
        for (at, (name, value)) in self.named().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}named_metrics.{name}={value}");
        }
        text
    }

    /// In protobuf's encoding.
    fn message(&self) -> Vec<u8> {
        const NAMED_METRICS: u8 = 8;
        let double = |out: &mut Vec<u8>, field: u8, value: f64| {
            out.push(field << 3 | 1);
            out.extend(value.to_le_bytes());
        };
        let bytes = |out: &mut Vec<u8>, field: u8, bytes: &[u8]| {
            // shorter than 128 bytes, all of them
            out.extend([field << 3 | 2, bytes.len() as u8]);
            out.extend(bytes);
        };
        let mut message = Vec::new();
        for (number, _, value) in self.fields() {
            double(&mut message, number, value);
        }
        for (name, value) in self.named() {
            let mut entry = Vec::new();
            bytes(&mut entry, 1, name.as_bytes());
            double(&mut entry, 2, value);
            bytes(&mut message, NAMED_METRICS, &entry);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that are added for a request that asks for `format` to those of `response`.
    fn added(
        format: &'static str,
        load: Option<EndpointLoad>,
        response: &[(&'static str, &'static str)],
    ) -> Vec<(String, String)> {
        let asks = HeaderMap::from_iter([(FORMAT, HeaderValue::from_static(format))]);
        let counters = Counters::default();
        counters.raise(Counter::InFlight);
        load.into_iter().for_each(|load| counters.load().set(load));
        let fields = response.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut fields: HeaderMap = fields.collect();
        if let Some(format) = LoadReportFormat::asked(&asks) {
            format.add(&mut fields, &counters);
        }
        fields.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    const LOAD: EndpointLoad = EndpointLoad { requests_per_s: 12.5, failures_per_s: 0.0, queue_ns: Some(3e6) };

    #[test]
    fn a_report_has_the_form_that_was_asked_for() {
        let json = r#"JSON {"rps_fractional": 12.5, "eps": 0, "named_metrics": {"lapwing.in_flight": 1, "lapwing.queue_ms": 3}}"#;
        assert_eq!(added("json", Some(LOAD), &[]), [("endpoint-load-metrics".to_owned(), json.to_owned())]);
        let text = "TEXT rps_fractional=12.5, eps=0, named_metrics.lapwing.in_flight=1, named_metrics.lapwing.queue_ms=3";
        assert_eq!(added("TEXT", Some(LOAD), &[]), [("endpoint-load-metrics".to_owned(), text.to_owned())]);
        let binary = added("bin", Some(LOAD), &[]);
        assert_eq!(binary[0].0, "endpoint-load-metrics-bin");
        let message = STANDARD.decode(&binary[0].1).unwrap();
        assert_eq!(message[..9], [0x31, 0, 0, 0, 0, 0, 0, 0x29, 0x40], "field 6, 12.5");
        assert!(added("yaml", Some(LOAD), &[]).is_empty());
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let json = r#"JSON {"named_metrics": {"lapwing.in_flight": 1}}"#;
        assert_eq!(added("json", None, &[])[0].1, json);
        assert_eq!(added("text", None, &[])[0].1, "TEXT named_metrics.lapwing.in_flight=1");
        assert!(!added("json", Some(EndpointLoad { queue_ns: None, ..LOAD }), &[])[0].1.contains("queue_ms"));
    }

    #[test]
    fn the_utilization_is_of_what_the_upstream_works_on_at_once() {
        let counters = Counters::default();
        for _ in 0..3 {
            counters.raise(Counter::InFlight);
        }
        counters.load().set_slots(Some(2), Stamp::now());
        let mut fields = HeaderMap::new();
        LoadReportFormat::Text.add(&mut fields, &counters);
        assert_eq!(fields[REPORT], "TEXT application_utilization=1.5, named_metrics.lapwing.in_flight=3");
    }

    #[test]
    fn the_upstreams_own_report_stays_as_it_is() {
        for own in [("endpoint-load-metrics", "TEXT eps=3"), ("endpoint-load-metrics-bin", "CQ==")] {
            assert_eq!(added("json", Some(LOAD), &[own]), [(own.0.to_owned(), own.1.to_owned())]);
        }
    }
}
