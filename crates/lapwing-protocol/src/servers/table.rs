//! All rows of all servers, and look-ups by server and location.

use super::field::{FieldLocation, ReportedField};
use super::{classic, generative};
use lapwing_ledger::Server;

/// The fields that `server` reports, in the order of preference. FastAPI reports nothing beyond what its handlers add.
#[must_use]
pub const fn of(server: Server) -> &'static [ReportedField] {
    match server {
        Server::Triton => classic::TRITON,
        Server::Vllm => generative::VLLM,
        Server::Sglang => generative::SGLANG,
        Server::Tei => classic::TEI,
        Server::Tgi => generative::TGI,
        Server::LlamaCpp => generative::LLAMA_CPP,
        Server::Ollama => generative::OLLAMA,
        Server::TfServing => classic::TF_SERVING,
        Server::TorchServe => classic::TORCH_SERVE,
        Server::MlServer => classic::ML_SERVER,
        Server::KServe => classic::KSERVE,
        Server::RayServe => classic::RAY_SERVE,
        Server::BentoMl => classic::BENTO_ML,
        Server::TensorRtLlm => generative::TENSORRT_LLM,
        Server::FastApi => &[],
    }
}

/// Every row of every server.
pub fn all() -> impl Iterator<Item = &'static ReportedField> {
    Server::ALL.iter().flat_map(|server| of(*server))
}

/// The fields that `server` reports in bodies, with their paths.
pub fn body(server: Server) -> impl Iterator<Item = (&'static str, &'static ReportedField)> {
    of(server).iter().filter_map(|row| if let FieldLocation::Body(path) = row.location { Some((path, row)) } else { None })
}

/// The fields that `server` reports in headers or gRPC metadata, with their names in lower case.
pub fn headers(server: Server) -> impl Iterator<Item = (&'static str, &'static ReportedField)> {
    of(server).iter().filter_map(|row| if let FieldLocation::Header(name) = row.location { Some((name, row)) } else { None })
}

/// The fields that `server` reports in protobuf responses, with their field numbers from the message down.
pub fn proto(server: Server) -> impl Iterator<Item = (&'static [u32], &'static ReportedField)> {
    of(server).iter().filter_map(|row| if let FieldLocation::Proto(path) = row.location { Some((path, row)) } else { None })
}

/// The fields that `server` reports as attributes of its span, with their keys.
pub fn span_attributes(server: Server) -> impl Iterator<Item = (&'static str, &'static ReportedField)> {
    of(server).iter().filter_map(|row| if let FieldLocation::SpanAttribute(key) = row.location { Some((key, row)) } else { None })
}

/// The fields that `server` reports as metric families, with their names.
pub fn metrics(server: Server) -> impl Iterator<Item = (&'static str, &'static ReportedField)> {
    of(server).iter().filter_map(|row| if let FieldLocation::Metric(name) = row.location { Some((name, row)) } else { None })
}

/// The fields that `server` reports in its own statistics, with their paths.
pub fn statistics(server: Server) -> impl Iterator<Item = (&'static str, &'static ReportedField)> {
    of(server).iter().filter_map(|row| if let FieldLocation::Statistics(path) = row.location { Some((path, row)) } else { None })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::field::{Quantity, Scale};
    use super::*;

    #[test]
    fn each_row_names_its_own_server_and_one_location() {
        for server in Server::ALL {
            let mut seen = HashSet::new();
            for row in of(*server) {
                assert_eq!(row.server, *server);
                assert!(seen.insert(format!("{:?}", row.location)), "{server:?}: {:?} twice", row.location);
            }
        }
    }

    #[test]
    fn scales_fit_the_quantity() {
        for row in all() {
            let is_count = matches!(
                row.quantity,
                Quantity::Work(_) | Quantity::BatchSize | Quantity::Running | Quantity::Waiting | Quantity::Padding
            );
            assert_eq!(row.scale == Scale::Count, is_count, "{row:?}");
            assert_eq!(row.scale == Scale::Text, row.quantity == Quantity::Model, "{row:?}");
            if let FieldLocation::Header(name) = row.location {
                assert!(http::HeaderName::from_static(name) == name, "{name}");
            }
        }
    }

    #[test]
    fn one_name_has_two_units() {
        let compute = |server| headers(server).find(|(name, _)| *name == "x-compute-time").unwrap().1.scale;
        assert_eq!((compute(Server::Tei), compute(Server::Tgi)), (Scale::Ms, Scale::S));
    }
}
