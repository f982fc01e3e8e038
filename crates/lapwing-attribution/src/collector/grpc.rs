//! The answers of a collector over gRPC, without what tonic cannot read.
//!
//! `tonic::Status::from_header_map` panics on a `grpc-status-details-bin` that is not base64
//! (`tonic/src/status.rs`, "Invalid status header, expected base64 encoded value"). A broken collector could end the task of
//! every exporter this way. Such a field is removed from heads and trailers before tonic sees them; code and message stay.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::MapFrame;

use lapwing_net::Body;

const DETAILS: &str = "grpc-status-details-bin";
/// As in tonic: padding may be there or not.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// The body of an answer whose trailers tonic can read.
pub(crate) type ReadableBody = MapFrame<Body, fn(Frame<Bytes>) -> Frame<Bytes>>;

/// The answer without status details that are not base64, in its head and in its trailers.
pub(crate) fn readable(answer: Response<Body>) -> Response<ReadableBody> {
    let (mut head, body) = answer.into_parts();
    remove_unreadable(&mut head.headers);
    Response::from_parts(head, body.map_frame(readable_frame as fn(Frame<Bytes>) -> Frame<Bytes>))
}

fn readable_frame(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        remove_unreadable(trailers);
    }
    frame
}

fn remove_unreadable(headers: &mut HeaderMap) {
    // tonic reads the first of them
    if headers.get(DETAILS).is_some_and(|details| BASE64.decode(details.as_bytes()).is_err()) {
        headers.remove(DETAILS);
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn details_that_are_no_base64_are_removed_and_others_stay() {
        for (details, stays) in [("", true), ("CAM", true), ("CAM=", true), ("%%%", false), ("a b", false), ("CAM\t", false)] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", "14".parse().unwrap());
            headers.insert(DETAILS, details.parse().unwrap());
            remove_unreadable(&mut headers);
            assert_eq!(headers.contains_key(DETAILS), stays, "{details:?}");
            assert_eq!(Status::from_header_map(&headers).unwrap().code(), tonic::Code::Unavailable);
        }
    }
}
