//! The configuration is replaced while the proxy runs: the next request has the new values, on whatever connection.

use lapwing::{app, config};
use lapwing_settings::ConfigCell;

use super::*;

const STREAM: &str = "HTTP/1.1 200 OK\r\nServer-Timing: db;dur=1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

/// A request with a body of 8 bytes.
const POST: &str = "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 8\r\n\r\n12345678";

#[test]
fn the_next_request_uses_the_new_configuration_on_new_and_open_connections() {
    let (observer, closed) = watching();
    let cell = ConfigCell::new(settings(Config::default(), observer.clone()));
    let proxy = Proxy::with(answering(STREAM), cell.handle(), Arc::default());
    let answer = |client: &mut Wire| {
        let got = client.send(POST).message().unwrap();
        (got.start.clone(), got.all("server-timing").len())
    };
    let (accepted, refused) = ("HTTP/1.1 200 OK".to_owned(), "HTTP/1.1 413 Payload Too Large".to_owned());
    let mut old = proxy.client();
    assert_eq!(answer(&mut old), (accepted.clone(), 1));

    let telling = ConnectionSettings { respond_server_timing: true, ..settings(Config::default(), observer.clone()) };
    cell.replace(telling);
    assert_eq!(answer(&mut proxy.client()), (accepted.clone(), 2), "the stages are told now");
    assert_eq!(answer(&mut old), (accepted, 2));

    let config = Config { max_request_bytes: Switch::On(Size(4)), ..Config::default() };
    cell.replace(settings(config, observer));
    assert_eq!(answer(&mut proxy.client()).0, refused);
    assert_eq!(answer(&mut old).0, refused);
    drop(old);

    proxy.stop();
    let outcomes: Vec<_> = closed.try_iter().map(|ledger| ledger.outcome).collect();
    let ok = outcomes.iter().filter(|outcome| **outcome == Outcome::Ok).count();
    assert_eq!((outcomes.len(), ok), (5, 3), "each request is counted once, whatever was in force: {outcomes:?}");
}

#[test]
fn a_running_lapwing_takes_another_configuration_whole() {
    let upstream = format!("http://{}", answering(STREAM));
    let sources = |more: &[(&str, &str)]| {
        let fixed = [("UPSTREAM", &*upstream), ("LISTEN", "127.0.0.1:0"), ("ADMIN", "127.0.0.1:0")];
        let off = [("OTLP_GRPC", "off"), ("OTLP_HTTP", "off"), ("PROXY__WORKERS", "2")];
        let named = |(name, value): &(&str, &str)| (format!("LAPWING_{name}"), (*value).to_owned());
        config::Sources::new(None, fixed.iter().chain(&off).chain(more).map(named).collect(), Vec::new())
    };
    let running = app::start(&config::load(&sources(&[])).unwrap()).unwrap();
    let connect = |address| Wire::new(TcpStream::connect(address).unwrap());
    let answer = |client: &mut Wire| {
        let got = client.send(POST).message().unwrap();
        (got.start.clone(), got.all("server-timing").len())
    };
    let admin = |path: &str| {
        let mut client = connect(running.addresses().admin);
        let got = client.send(format!("GET {path} HTTP/1.1\r\nHost: m\r\n\r\n")).message().unwrap();
        serde_json::from_slice::<serde_json::Value>(&got.body).unwrap()
    };
    let mut old = connect(running.addresses().listen);
    assert_eq!(answer(&mut old), ("HTTP/1.1 200 OK".to_owned(), 1));
    assert_eq!(admin("/config")["values"]["respond_server_timing"], false);

    let another = [("RESPOND_SERVER_TIMING", "true"), ("PROXY__MAX_REQUEST_BYTES", "4")];
    let faulty = [("RESPOND_SERVER_TIMING", "true"), ("PROXY__MAX_IN_FLIGHT", "0")];
    assert_eq!(running.reload(&sources(&faulty)).unwrap_err().len(), 1);
    assert_eq!(admin("/config")["values"]["respond_server_timing"], false, "nothing of a faulty configuration is in force");
    assert_eq!(
        (&admin("/config")["generation"], admin("/config")["failed_reload"]["faults"].as_array().unwrap().len()),
        (&1.into(), 1)
    );
    let reloaded = running.reload(&sources(&[another.as_slice(), &[("PROXY__TCP_BACKLOG", "99")]].concat())).unwrap();
    assert_eq!(reloaded.changed, ["proxy.max_request_bytes", "respond_server_timing"]);
    assert_eq!(
        (reloaded.needs_restart.as_slice(), &admin("/config")["needs_restart"][0]),
        (&["proxy.tcp_backlog".to_owned()][..], &"proxy.tcp_backlog".into())
    );
    assert_eq!((&admin("/config")["generation"], &admin("/config")["failed_reload"]), (&2.into(), &serde_json::Value::Null));
    assert!(running.config().config.respond_server_timing);
    assert_eq!(admin("/config")["values"]["respond_server_timing"], true, "the admin surface shows what is in force");
    // every worker has the new one, and so has a connection that was open
    for _ in 0..8 {
        assert_eq!(answer(&mut connect(running.addresses().listen)).0, "HTTP/1.1 413 Payload Too Large");
    }
    assert_eq!(answer(&mut old).0, "HTTP/1.1 413 Payload Too Large");
    drop(old);
    running.stop().unwrap();
}
