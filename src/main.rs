//! SCRATCH, never committed
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use lapwing::{proxy, metrics::{Counter, Counters, Labels}, ledger::*};
fn dur(s: &str) -> Duration {
    if let Some(x) = s.strip_suffix("ms") { Duration::from_millis(x.parse().unwrap()) } else { Duration::from_secs_f64(s.strip_suffix('s').unwrap().parse().unwrap()) }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let get = |k: &str| a.iter().position(|x| x == k).map(|i| a[i + 1].clone());
    let up = get("--upstream").unwrap();
    let target = match up.strip_prefix("unix:") { Some(p) => proxy::Target::Unix(p.into()), None => proxy::Target::Tcp(up.trim_start_matches("http://").trim_end_matches('/').into()) };
    let mut c = proxy::Config::default();
    if let Some(f) = get("--config") {
        for l in std::fs::read_to_string(f).unwrap().lines() {
            let Some((k, v)) = l.trim().split_once(':') else { continue };
            let v = v.trim().trim_matches('"');
            match k { "connect_timeout" => c.connect_timeout.0 = dur(v), "header_timeout" => c.header_timeout.0 = dur(v), "idle_timeout" => c.idle_timeout.0 = dur(v),
              "client_header_timeout" => c.client_header_timeout.0 = dur(v), "client_idle_timeout" => c.client_idle_timeout.0 = dur(v), "pool_idle_timeout" => c.pool_idle_timeout.0 = dur(v),
              "max_in_flight" => c.max_in_flight = v.parse().unwrap(), "max_header_bytes" => c.max_header_bytes.0 = v.parse().unwrap(), "max_request_bytes" => c.max_request_bytes = Some(v.parse().unwrap()), _ => {} }
        }
    }
    let counters = Arc::new(Counters::default());
    let queue = Arc::new(crossbeam_queue::ArrayQueue::<Ledger>::new(8192));
    let labels = Arc::new(Labels::new(100, 100, 100));
    let profiler = proxy::Profiler::new(queue.clone(), counters.clone(), labels.clone(), &up, Box::new(|_, _, _| ()));
    let book = Arc::new(Mutex::new(Vec::<Ledger>::new()));
    let (b, q) = (book.clone(), queue.clone());
    std::thread::spawn(move || loop { std::thread::sleep(Duration::from_millis(10)); while let Some(l) = q.pop() { b.lock().unwrap().push(l); } });
    let admin = std::net::TcpListener::bind(get("--admin").unwrap()).unwrap();
    let cc = counters.clone();
    std::thread::spawn(move || for s in admin.incoming() {
        let mut s = s.unwrap(); let mut buf = [0u8; 4096]; let n = s.read(&mut buf).unwrap_or(0);
        let req = String::from_utf8_lossy(&buf[..n]).to_string();
        let book = book.lock().unwrap();
        let body = if req.starts_with("GET /stats") {
            let o: Vec<String> = Outcome::ALL.iter().map(|o| format!("\"{}\":{}", o.name(), book.iter().filter(|l| l.outcome == *o).count())).collect();
            format!("{{\"series\":[{{\"count\":{},\"outcomes\":{{{}}}}}],\"profiler\":{{\"clipped\":0,\"in_flight\":{},\"retried\":{}}}}}", book.len(), o.join(","), cc.get(Counter::InFlight), cc.get(Counter::UpstreamRetried))
        } else if req.starts_with("GET /exchanges") {
            let e: Vec<String> = book.iter().rev().take(50).map(|l| format!("{{\"route\":\"x\",\"status\":{},\"outcome\":\"{}\",\"total_ns\":{},\"dbg\":\"{}\"}}", l.status, l.outcome.name(), l.total_ns, format!("{l:?}").replace('"', "'"))).collect();
            format!("{{\"exchanges\":[{}]}}", e.join(","))
        } else { "ok".into() };
        let _ = write!(s, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{}", body.len(), body);
    });
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let parts = proxy::Parts { config: c, target, tracing: proxy::Tracing { sampling: proxy::TraceSampling::Auto, mark: TraceMark::random(), forced: Arc::new(|_| ()) }, observer: Arc::new(profiler), counters };
    let l = proxy::bind(get("--listen").unwrap().parse().unwrap(), 1024, false).unwrap();
    rt.block_on(proxy::serve(l, parts, tokio_util::sync::CancellationToken::new())).unwrap();
}
