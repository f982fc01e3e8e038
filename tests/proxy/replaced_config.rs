//! The configuration is replaced while the proxy runs: a connection keeps what it began with, the next one has the new values.

use lapwing::settings::ConfigCell;

use super::*;

const STREAM: &str = "HTTP/1.1 200 OK\r\nServer-Timing: db;dur=1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

/// A request with a body of 8 bytes.
const POST: &str = "POST /x HTTP/1.1\r\nHost: m\r\nContent-Length: 8\r\n\r\n12345678";

#[test]
fn new_connections_use_the_new_configuration_and_old_ones_keep_theirs() {
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
    assert_eq!(answer(&mut old), (accepted.clone(), 1));

    let config = Config { max_request_bytes: Switch::On(Size(4)), ..Config::default() };
    cell.replace(settings(config, observer));
    assert_eq!(answer(&mut proxy.client()).0, refused);
    assert_eq!(answer(&mut old), (accepted, 1));
    drop(old);

    proxy.stop();
    let outcomes: Vec<_> = closed.try_iter().map(|ledger| ledger.outcome).collect();
    let ok = outcomes.iter().filter(|outcome| **outcome == Outcome::Ok).count();
    assert_eq!((outcomes.len(), ok), (5, 4), "each request is counted once, whatever was in force: {outcomes:?}");
}
