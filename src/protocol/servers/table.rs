//! All rows, and look-ups by server and carrier.

use super::row::{Carrier, Row};
use super::{
    bento_ml, kserve, llama_cpp, ml_server, ollama, ray_serve, sglang, tei, tensorrt_llm, tf_serving, tgi, torch_serve, triton,
    vllm,
};
use crate::ledger::Server;

/// What `server` reports, in the order of preference. FastAPI reports nothing that its handlers do not.
#[must_use]
pub const fn of(server: Server) -> &'static [Row] {
    match server {
        Server::Triton => triton::ROWS,
        Server::Vllm => vllm::ROWS,
        Server::Sglang => sglang::ROWS,
        Server::Tei => tei::ROWS,
        Server::Tgi => tgi::ROWS,
        Server::LlamaCpp => llama_cpp::ROWS,
        Server::Ollama => ollama::ROWS,
        Server::TfServing => tf_serving::ROWS,
        Server::TorchServe => torch_serve::ROWS,
        Server::MlServer => ml_server::ROWS,
        Server::KServe => kserve::ROWS,
        Server::RayServe => ray_serve::ROWS,
        Server::BentoMl => bento_ml::ROWS,
        Server::TensorRtLlm => tensorrt_llm::ROWS,
        Server::FastApi => &[],
    }
}

/// Every row of every server.
pub fn all() -> impl Iterator<Item = &'static Row> {
    Server::ALL.iter().flat_map(|server| of(*server))
}

/// The rows of `server` that stand in bodies, with their paths.
pub fn body(server: Server) -> impl Iterator<Item = (&'static str, &'static Row)> {
    of(server).iter().filter_map(|row| if let Carrier::Body(path) = row.carrier { Some((path, row)) } else { None })
}

/// The rows of `server` that stand in headers or gRPC metadata, with their names in lower case.
pub fn headers(server: Server) -> impl Iterator<Item = (&'static str, &'static Row)> {
    of(server).iter().filter_map(|row| if let Carrier::Header(name) = row.carrier { Some((name, row)) } else { None })
}

/// The rows of `server` that stand in protobuf responses, with their field numbers from the message down.
pub fn proto(server: Server) -> impl Iterator<Item = (&'static [u32], &'static Row)> {
    of(server).iter().filter_map(|row| if let Carrier::Proto(path) = row.carrier { Some((path, row)) } else { None })
}

/// The rows of `server` that are attributes of its span, with their keys.
pub fn span_attributes(server: Server) -> impl Iterator<Item = (&'static str, &'static Row)> {
    of(server).iter().filter_map(|row| if let Carrier::SpanAttribute(key) = row.carrier { Some((key, row)) } else { None })
}

/// The rows of `server` that are metric families, with their names.
pub fn metrics(server: Server) -> impl Iterator<Item = (&'static str, &'static Row)> {
    of(server).iter().filter_map(|row| if let Carrier::Metric(name) = row.carrier { Some((name, row)) } else { None })
}

/// The rows of `server` that stand in its own statistics, with their paths.
pub fn statistics(server: Server) -> impl Iterator<Item = (&'static str, &'static Row)> {
    of(server).iter().filter_map(|row| if let Carrier::Statistics(path) = row.carrier { Some((path, row)) } else { None })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::row::{Says, Scale};
    use super::*;

    #[test]
    fn rows_are_their_servers_own_and_stand_in_one_place_each() {
        for server in Server::ALL {
            let mut seen = HashSet::new();
            for row in of(*server) {
                assert_eq!(row.server, *server);
                assert!(seen.insert(format!("{:?}", row.carrier)), "{server:?}: {:?} twice", row.carrier);
            }
        }
    }

    #[test]
    fn scales_fit_what_is_said() {
        for row in all() {
            let is_count = matches!(row.says, Says::Work(_) | Says::BatchSize | Says::Running | Says::Waiting | Says::Padding);
            assert_eq!(row.scale == Scale::Count, is_count, "{row:?}");
            assert_eq!(row.scale == Scale::Text, row.says == Says::Model, "{row:?}");
            if let Carrier::Header(name) = row.carrier {
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
