//! Which servers are recognised, and which addresses are asked.

use super::*;

fn http(authority: &str) -> Upstream {
    Upstream::Http { authority: authority.to_owned(), h2: false }
}

fn asked(poll: &Poll, upstream: &Upstream, own: &[u16]) -> Vec<String> {
    candidates(poll, upstream, own).iter().map(|c| format!("{}{}", c.at, c.path)).collect()
}

const PATHS: [&str; 4] = ["/v2", "/metrics", "/monitoring/prometheus/metrics", "/prometheus/metrics"];

#[test]
fn the_upstream_is_asked_then_the_usual_other_port() {
    let base = |at: &str| PATHS.map(|path| format!("{at}{path}")).to_vec();
    assert_eq!(asked(&Poll::Auto, &http("m:8000"), &[]), base("http://m:8000"));
    let mut both = base("http://m:8080");
    both.push("http://m:8082/metrics".to_owned());
    assert_eq!(asked(&Poll::Auto, &http("m:8080"), &[8081]), both);
    assert_eq!(asked(&Poll::Auto, &http("m:8080"), &[8082]), base("http://m:8080"), "never Lapwing itself");
    assert_eq!(asked(&Poll::Auto, &http("[::1]:8500"), &[]).last().unwrap(), "http://[::1]:8501/monitoring/prometheus/metrics");
    assert_eq!(asked(&Poll::Auto, &Upstream::Unix { path: "/s".into() }, &[]), base("unix:/s"));
    let grpc = Upstream::Http { authority: "m:8001".to_owned(), h2: true };
    assert_eq!(asked(&Poll::Auto, &grpc, &[]), ["http://m:8000/v2"]);
}

#[test]
fn an_address_is_asked_alone() {
    let at = |path: &str| Poll::At { authority: "n:9".to_owned(), path: path.to_owned() };
    assert_eq!(asked(&at("/m"), &http("m:8080"), &[]), ["http://n:9/m"]);
    assert_eq!(asked(&at(""), &http("m:8080"), &[]), PATHS.map(|path| format!("http://n:9{path}")));
    assert_eq!(asked(&Poll::Off, &http("m:8080"), &[]), [""; 0]);
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
