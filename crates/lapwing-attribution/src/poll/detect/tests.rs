//! Who answers, and where is asked.

use super::*;

#[test]
fn a_configured_address_is_asked_alone_and_a_server_at_its_usual_paths() {
    let asked = |path: &str| configured("n:9", path).iter().map(|c| format!("{}{}", c.at, c.path)).collect::<Vec<_>>();
    assert_eq!(asked("/m"), ["n:9/m"]);
    let usual = ["/v2", "/metrics", "/monitoring/prometheus/metrics", "/prometheus/metrics"];
    assert_eq!(asked(""), usual.map(|path| format!("n:9{path}")));
}

#[test]
fn only_servers_that_say_who_they_are_own_a_path() {
    let owning: Vec<&str> =
        Server::ALL.iter().filter(|server| own_path(**server).is_some()).map(|server| server.name()).collect();
    assert_eq!(owning, ["triton", "vllm", "sglang", "tei", "tgi", "llama.cpp", "bentoml", "tensorrt-llm"]);
}

#[test]
fn servers_are_known_by_their_metadata() {
    let triton = br#"{"name":"triton","version":"2.51.0","extensions":["classification","statistics","trace"]}"#;
    assert_eq!(by_metadata(triton), Some((Server::Triton, true)));
    assert_eq!(by_metadata(br#"{"name":"mine","extensions":["statistics"]}"#), Some((Server::Triton, true)));
    assert_eq!(by_metadata(br#"{"name":"mlserver","version":"1.7.1","extensions":[]}"#), Some((Server::MlServer, false)));
    for other in [&b"{\"name\":\"x\"}"[..], b"{\"detail\":\"Not Found\"}", b"[]", b"<html>", b""] {
        assert_eq!(by_metadata(other), None);
    }
}

#[test]
fn servers_are_known_by_their_families_before_the_first_request() {
    let vllm = "# HELP python_info x\n# TYPE vllm:request_queue_time_seconds histogram\n";
    assert_eq!(by_metrics(vllm), Some(Server::Vllm));
    assert_eq!(by_metrics("# TYPE te_queue_size gauge\nte_queue_size 0\n"), Some(Server::Tei));
    for other in ["", "process_cpu_seconds_total 3\n", "<html>vllm:request_queue_time_seconds</html>", "{\"a\":1}"] {
        assert_eq!(by_metrics(other), None, "{other}");
    }
}

#[test]
fn each_path_is_read_as_what_it_describes() {
    let [metadata, metrics] = DESCRIPTION_PATHS;
    let (triton, vllm) = (br#"{"name":"triton","extensions":[]}"#, b"# TYPE vllm:request_queue_time_seconds histogram\n");
    assert_eq!(described_server(metadata, triton), Some(Server::Triton));
    assert_eq!(described_server(metrics, vllm), Some(Server::Vllm));
    assert_eq!([described_server(metrics, triton), described_server(metadata, vllm), described_server("/", vllm)], [None; 3]);
}
