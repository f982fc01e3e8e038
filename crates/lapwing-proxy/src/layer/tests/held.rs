//! Requests that are placed by the model that their body names.

use tower::layer::util::Identity;

use super::*;
use crate::{PlacedUpstream, PlacementSettings, PoolMember};
use lapwing_dispatch::UpstreamRoute;
use lapwing_ledger::{LabelTable, ObservedEvent, Phase, Source, Stage, merge};
use lapwing_protocol::request_match::RouteMatch;
use lapwing_settings::{LeverSwitch, Size};

/// A proxy before two servers, of which the second takes the models `held*`, and what else has less than nine rows.
async fn two_servers(hold: hold::Config, tasks: &Tasks) -> (Proxy, [Asked; 2]) {
    let (first, second) = (server("a ", tasks).await, server("b ", tasks).await);
    let labels = LabelTable::new(2);
    let member = |name: &str, address: SocketAddr| PoolMember {
        upstream: PlacedUpstream { target: Target::Tcp(address.to_string()), protocol: None, health: Arc::default() },
        name: name.to_owned(),
        label: labels.intern(name),
    };
    let to = |matches: RouteMatch, name: &str| UpstreamRoute { matches, to: vec![name.to_owned()], policy: None, affinity: None };
    let by_model = |model: &str| RouteMatch { model: Some(model.to_owned()), ..RouteMatch::default() };
    let by_rows = RouteMatch { class: Some("..8".parse().unwrap()), route: Some("/v2/*".to_owned()), ..RouteMatch::default() };
    let members = vec![member("a", first.0), member("b", second.0)];
    let routes = vec![to(by_model("held*"), "b"), to(by_rows, "b"), to(by_model("*"), "a")];
    let settings = ConfigHandle::fixed(PlacementSettings { routes, ..PlacementSettings::default() });
    let upstreams = Upstreams::several(members, &settings, None, &LeverSwitch::default()).unwrap();
    let kept = Kept { protocols: Some(Protocols::default()), ..Kept::default() };
    (Proxy::serve((kept, hold, None), upstreams, Identity::new(), tasks), [first.1, second.1])
}

async fn complete(proxy: &Proxy, body: &str, fields: &[(&str, &str)]) -> Bytes {
    let request = Request::post("/v1/completions").header("content-type", "application/json");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = proxy.client.fetch(request.body(Full::from(body.to_owned())).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body()
}

fn naming(model: &str, length: usize) -> String {
    format!(r#"{{"prompt": "{}", "model": "{model}"}}"#, "x".repeat(length))
}

#[tokio::test]
async fn the_model_in_a_body_decides_and_the_wait_for_it_is_shown() {
    let tasks = Tasks::default();
    let (proxy, _) = two_servers(hold::Config::default(), &tasks).await;
    for (model, server) in [("held-1", "b "), ("other", "a "), ("held-2", "b ")] {
        let body = naming(model, 100_000);
        assert_eq!(complete(&proxy, &body, &[]).await, format!("{server}{body}"));
        let ledger = proxy.closed(1).await.remove(0);
        let held: Vec<_> = ledger.spans.iter().filter(|span| span.event == ObservedEvent::Dispatch).collect();
        assert!(matches!(held.as_slice(), [span] if span.stage == Stage::Queue), "{held:?}");
        assert_eq!((ledger.outcome, ledger.request_bytes), (Outcome::Ok, body.len() as u64));
        let exchange = merge(ledger, Vec::new());
        assert_eq!(exchange.account.total_ns(), exchange.ledger.total_ns);
        let (queue, source) = exchange.stage(Stage::Queue).unwrap();
        assert_eq!((exchange.phase(Phase::Dispatch), source), (Some((queue, source)), Source::Observed));
    }
    let named = proxy.ask("/v2/models/held-1/infer", "{}").await;
    assert_eq!(named, "b {}");
    let ledger = proxy.closed(1).await.remove(0);
    assert!(ledger.spans.iter().all(|span| span.event != ObservedEvent::Dispatch), "its path names the model");
    let counters = &proxy.parts.counters;
    assert_eq!([counters.get(Counter::HeldRequests), counters.get(Counter::HoldBytes)], [3, 0]);
    proxy.stop.cancel();
}

#[tokio::test]
async fn the_work_that_a_body_asks_for_decides() {
    let tasks = Tasks::default();
    let (proxy, _) = two_servers(hold::Config::default(), &tasks).await;
    for (rows, server) in [(8, "b "), (9, "a "), (1, "b ")] {
        let values = vec!["1.5"; rows].join(", ");
        let body = format!(r#"{{"inputs": [{{"name": "x", "shape": [{rows}], "datatype": "FP32", "data": [{values}]}}]}}"#);
        assert_eq!(proxy.ask("/v2/models/digits/infer", body.clone()).await, format!("{server}{body}"), "{rows}");
        assert!(proxy.closed(1).await[0].spans.iter().any(|span| span.event == ObservedEvent::Dispatch));
    }
    proxy.stop.cancel();
}

#[tokio::test]
async fn what_passes_a_bound_is_placed_by_what_is_known() {
    let tasks = Tasks::default();
    let small = hold::Config { max_body: Size(1_000), budget: Size(2_000), ..hold::Config::default() };
    let (proxy, asked) = two_servers(small, &tasks).await;
    let large = naming("held-1", 2_000);
    let unread = &[("content-encoding", "lzma")][..];
    let cases = [(large.as_str(), &[][..], Counter::HoldPassedBody), (&naming("held-1", 10), unread, Counter::HoldPassedUnread)];
    for (body, fields, counter) in cases {
        complete(&proxy, body, fields).await;
        let ledger = proxy.closed(1).await.remove(0);
        assert!(ledger.spans.iter().all(|span| span.event != ObservedEvent::Dispatch));
        assert_eq!([proxy.parts.counters.get(counter), proxy.parts.counters.get(Counter::HeldRequests)], [1, 0]);
    }
    let bodies: Vec<_> = asked.iter().flat_map(|asked| asked.lock().unwrap().clone()).map(|(_, body)| body.len()).collect();
    assert_eq!(bodies.iter().sum::<usize>(), large.len() + naming("held-1", 10).len(), "nothing is lost");
    // the rest is placed by its head
    assert_eq!(complete(&proxy, &naming("held-1", 10), &[]).await[..2], b"b "[..]);
    proxy.stop.cancel();
}
