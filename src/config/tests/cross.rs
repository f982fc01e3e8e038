//! Settings that are valid one by one, and contradict one another or are probably a mistake.

use super::{case, faults};

#[test]
fn settings_that_contradict_one_another_are_faults() {
    assert_eq!(
        faults("listen: 127.0.0.1:9464"),
        "listen: 127.0.0.1:9464: collides with admin, which listens on 127.0.0.1:9464 (file l.yaml)"
    );
    assert_eq!(
        faults("listen: 127.0.0.1:5\notlp_http: ':5'"),
        "otlp_http: 0.0.0.0:5: collides with listen, which listens on 127.0.0.1:5 (file l.yaml)"
    );
    assert_eq!(
        case("", &[], &[("upstream", "http://localhost:8080"), ("listen", ":8080")]).faults(),
        "upstream: http://localhost:8080: is Lapwing itself: listen listens there (flag --upstream)"
    );
    assert_eq!(
        faults("otlp_forward: grpc://127.0.0.1:4317"),
        "otlp_forward: grpc://127.0.0.1:4317: is Lapwing itself: otlp_grpc listens there (file l.yaml)"
    );
    let any_port =
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\notlp_grpc: 127.0.0.1:0\notlp_http: 127.0.0.1:0\nupstream: http://m:1";
    assert!(case(any_port, &[], &[]).loaded().warnings.is_empty());
    // settings that depend on a faulty value are not reported
    assert_eq!(faults("otlp_forward: nowhere\notlp_forward_headers: {a: b}").lines().count(), 1);
    assert_eq!(
        faults("attribution: {poll: 'http://localhost:9464/metrics'}\n"),
        "attribution.poll: http://localhost:9464/metrics: is Lapwing itself: admin listens there (file l.yaml)"
    );
    assert_eq!(
        faults("shadow: {targets: {again: 'http://localhost:8080'}}\n"),
        "shadow.targets.again: http://localhost:8080: is Lapwing itself: listen listens there (file l.yaml)"
    );
    let two = "upstreams: {a: {url: 'http://h:1'}, b: {url: 'http://h:2'}}\n";
    let concurrent = case(&format!("{two}split: {{candidate: b, compare: true}}\nshadow: {{order: concurrent}}\n"), &[], &[]);
    assert!(concurrent.faults().starts_with("split.compare: true: needs shadow.order: after"), "{}", concurrent.faults());
    let noisy = "shadow: {targets: {t: 'http://h:3'}, order: concurrent, noise: 1%}\n";
    let noisy = case(&format!("{two}{noisy}"), &[], &[]);
    assert!(noisy.faults().starts_with("shadow.noise: 1%: needs shadow.order: after"), "{}", noisy.faults());
    let missing = if cfg!(feature = "engine") { "is not a file" } else { "needs the embedded engine" };
    assert!(faults("shadow: {targets: {ref: 'engine:no.onnx'}}\n").contains(missing));
}

#[test]
fn the_spare_upstream_is_one_whose_answers_are_compared_and_that_is_sent_nothing_else() {
    let two = "upstreams: {a: {url: 'http://h:1'}, b: {url: 'http://h:2'}}\ndispatch: {hedge: {spare: b}}\n";
    let compared = "shadow: {targets: {b: 'http://h:2'}}\n";
    assert!(case(&format!("{two}{compared}"), &[], &[]).loaded().config.dispatch.hedge.spare().is_some());
    for (yaml, says) in [
        (two.replace("spare: b", "spare: c"), "spare: c: is none of `upstreams`"),
        (two.to_owned(), "spare: b: needs shadow.targets.b: http://h:2"),
        (format!("{two}shadow: {{targets: {{b: 'http://h:3'}}}}\n"), "spare: b: needs shadow.targets.b: http://h:2"),
        (format!("{}{compared}", two.replace("a: {url: 'http://h:1'}, ", "")), "spare: b: is the only one of `upstreams`"),
        (format!("{two}{compared}split: {{candidate: b}}\n"), "spare: b: is split.candidate"),
        (format!("{two}{compared}routes: [{{match: {{model: m}}, to: [a, b]}}]\n"), "spare: b: is named in routes[0].to"),
    ] {
        let faults = case(&yaml, &[], &[]).faults();
        assert!(faults.starts_with("dispatch.hedge.") && faults.contains(says), "{faults}");
    }
}

#[test]
fn settings_that_are_probably_a_mistake_cause_warnings() {
    let warnings = |yaml: &str| {
        let upstream = if yaml.contains("upstreams:") { "" } else { "upstream: http://m:1\n" };
        case(&format!("{upstream}{yaml}"), &[], &[]).loaded().warnings
    };
    assert!(warnings("otlp_grpc: ':4317'\nadmin: ':9464'\nlisten: ':8080'")[0].starts_with("otlp_grpc: 0.0.0.0:4317: "));
    assert!(warnings("otlp_grpc: '[::1]:4317'").is_empty());
    let unread = warnings(
        "protocol: {read_bodies: false}\nupstreams: {a: {url: 'http://h:1'}}\nroutes: [{match: {model: m, class: 1..}, to: [a]}]",
    );
    assert!(unread.len() == 2 && unread[1].starts_with("routes[0].match.class: is not looked for in bodies"), "{unread:?}");
    let off = warnings("otlp_grpc: off\notlp_http: off\notlp_forward: http://o:1\nattribution: {expect_spans: always}");
    assert_eq!(off.len(), 2, "{off:?}");
    let hedge = "upstreams: {a: {url: 'http://h:1'}, b: {url: 'http://h:2'}}\ndispatch: {mode: observe, hedge: {mode: on}}\n";
    assert!(warnings(hedge)[0].starts_with("dispatch.hedge: has no effect unless requests wait"));
    let on = hedge.replace("mode: observe", "mode: on");
    assert!(warnings(&on).is_empty());
    assert!(warnings(&on.replace(", b: {url: 'http://h:2'}", ""))[0].starts_with("dispatch.hedge: has no effect: it needs"));
}
