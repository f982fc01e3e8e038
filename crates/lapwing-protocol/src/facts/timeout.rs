//! The parameter `timeout` of a request of the Open Inference Protocol: microseconds, of which zero is no limit.

use crate::tag::{Tag, TagValue};
use lapwing_ledger::{Deadline, DeadlineSource, Ledger};

/// The parameter's name.
const TIMEOUT: &[u8] = b"timeout";

/// What a request says of the time that it may take.
#[derive(Debug, Default)]
pub(crate) struct TimeoutParameter {
    micros: u64,
    /// The parameter of which a value comes next is the timeout: over gRPC, parameters are a map.
    is_named: bool,
    is_malformed: bool,
}

impl TimeoutParameter {
    /// Records a watched value.
    pub(crate) fn note(&mut self, tag: Tag, seen: TagValue<'_>) {
        match (tag, seen) {
            (Tag::ParameterName, TagValue::Text { head, .. }) => self.is_named = head == TIMEOUT,
            (Tag::ParameterValue, _) if !std::mem::take(&mut self.is_named) => {}
            _ => {
                self.is_malformed |= seen.count().is_none();
                self.micros = seen.count().unwrap_or(0);
            }
        }
    }

    /// Whether it is no number of microseconds.
    pub(crate) const fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// How long the request may take, if it says so.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        let budget_ns = self.micros.saturating_mul(1_000);
        (budget_ns > 0).then_some(Deadline { budget_ns, source: DeadlineSource::Parameter })
    }

    /// Writes it into the ledger, unless the request's head says how long it may take.
    pub(crate) fn write(&self, ledger: &mut Ledger) {
        ledger.deadline = ledger.deadline.or_else(|| self.deadline());
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::Protocols;
    use lapwing_ledger::Stamp;

    /// What a request's body says, read in pieces of this many bytes: the time in microseconds, and whether it is malformed.
    fn read(path: &str, kind: &'static str, body: &[u8], piece: usize, before: Option<Deadline>) -> (Option<u64>, bool) {
        let protocols = Protocols::default();
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let mut reader = protocols.open(&protocols.detect(&Method::POST, path), &headers).unwrap();
        body.chunks(piece).for_each(|piece| reader.request(piece));
        let mut ledger = Ledger { deadline: before, ..Ledger::open(Stamp::default(), 0) };
        reader.close(&mut ledger);
        (ledger.deadline.map(|deadline| deadline.budget_ns / 1_000), reader.has_malformed_timeout())
    }

    fn rest(parameters: &str, piece: usize) -> (Option<u64>, bool) {
        let body = format!(
            r#"{{"parameters": {parameters}, "inputs": [{{"name": "x", "shape": [1], "parameters": {{"timeout": 9}}, "data": [1]}}]}}"#
        );
        read("/v2/models/m/infer", "application/json", body.as_bytes(), piece, None)
    }

    /// A field with a length, of fewer than 128 bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    /// A call of `ModelInfer` whose parameters have these names and values.
    fn grpc(parameters: &[(&str, &[u8])], piece: usize) -> (Option<u64>, bool) {
        let entries = parameters.iter().map(|(name, value)| {
            let entry = [field(1, name.as_bytes()), field(2, value)].concat();
            field(4, &entry)
        });
        let message = [field(1, b"m")].into_iter().chain(entries).collect::<Vec<_>>().concat();
        let body = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat();
        read("/inference.GRPCInferenceService/ModelInfer", "application/grpc", &body, piece, None)
    }

    /// `int64_param` and `uint64_param` of 300; `string_param` of "300".
    const INT64: &[u8] = &[0x10, 0xac, 0x02];
    const UINT64: &[u8] = &[0x28, 0xac, 0x02];
    const STRING: &[u8] = b"\x1a\x03300";

    proptest! {
        #[test]
        fn the_requests_own_parameter_counts_however_its_bytes_come(piece in 1_usize..200) {
            prop_assert_eq!(rest(r#"{"a": 1, "timeout": 2500, "b": {"timeout": 3}}"#, piece), (Some(2_500), false));
            prop_assert_eq!(grpc(&[("priority", INT64), ("timeout", UINT64), ("a", STRING)], piece), (Some(300), false));
        }
    }

    #[test]
    fn parameters_may_come_last() {
        let body = br#"{"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}], "parameters": {"timeout": 30000000}}"#;
        assert_eq!(read("/v2/models/m/infer", "application/json", body, 500, None).0, Some(30_000_000));
    }

    #[test]
    fn zero_is_no_limit_and_what_is_no_number_is_malformed() {
        assert_eq!(rest(r#"{"timeout": 0}"#, 7), (None, false));
        assert_eq!(rest("{}", 7), (None, false));
        for malformed in [r#"{"timeout": "1s"}"#, r#"{"timeout": -1}"#, r#"{"timeout": true}"#] {
            assert_eq!(rest(malformed, 7), (None, true), "{malformed}");
        }
        assert_eq!(grpc(&[("timeout", INT64)], 3), (Some(300), false));
        assert_eq!(grpc(&[("timeout", STRING)], 3), (None, true));
        assert_eq!(grpc(&[("time", INT64), ("a", STRING)], 3), (None, false));
    }

    #[test]
    fn what_the_head_says_comes_first() {
        let before = Some(Deadline { budget_ns: 7_000, source: DeadlineSource::GrpcTimeout });
        let body = br#"{"parameters": {"timeout": 2500}, "inputs": []}"#;
        assert_eq!(read("/v2/models/m/infer", "application/json", body, 9, before).0, Some(7));
    }
}
