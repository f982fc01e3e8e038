//! The demo's lines: what runs and what to try at the start, and one line at a time without a terminal.
//!
//! Figures are those of `/stats`.

use std::net::SocketAddr;

use crate::load::ROWS;
use crate::options::Demo;
use crate::tickets::MODEL;
use lapwing_console::stats::{Stats, figures_line};
use lapwing_console::units::percent;

/// What runs on which address, how to send a request, and when it ends.
pub(crate) fn opening(demo: &Demo, proxy: SocketAddr, admin: SocketAddr) -> String {
    let server = demo.server.map_or_else(|| "on a loopback port".to_owned(), |at| format!("http://{at}"));
    let (clients, rate) = (demo.clients.max(1), demo.requests_per_second());
    let clients = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
    let (fewest, most) = ROWS;
    let load = match &demo.played {
        Some(played) => {
            let (quantile, ms) = played.scenario.budget;
            let (name, what) = (played.scenario.name, played.scenario.what);
            format!(
                "{rate} requests/s, seed {}; budget: {quantile} within {ms} ms\n\x20 scenario      {name}: {what}",
                played.seed
            )
        }
        None => format!("{rate} requests/s from {clients}, {fewest} to {most} rows each"),
    };
    let end = match demo.seconds {
        Some(seconds) => format!("ends after {seconds} s, or with Ctrl-C"),
        None => "ends with Ctrl-C".to_owned(),
    };
    format!(
        "lapwing demo: where does an inference request's time go? ({end})\n\
         \x20 model server  {server}, model {MODEL} (ONNX on the CPU), reports by Server-Timing and OTLP\n\
         \x20 lapwing       http://{proxy}, in front of it\n\
         \x20 admin         http://{admin}\n\
         \x20 load          {load}\n\
         try\n\
         \x20 curl 'http://{admin}/stats'\n\
         \x20 curl 'http://{admin}/exchanges?order=slowest&limit=3'\n"
    )
}

/// The busiest series in one line; `seconds` is the time since the start, `hit_rate` that of the feature cache.
pub(crate) fn line(stats: &Stats, seconds: f64, hit_rate: Option<f64>) -> String {
    let Some(series) = stats.busiest() else {
        return format!("{seconds:4.0} s  no requests yet");
    };
    let cache = hit_rate.map_or_else(String::new, |rate| format!("; feature cache {}", percent(rate)));
    format!("{seconds:4.0} s  {}{cache}", figures_line(series, stats.rate(series, seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: [u8; 4] = [127, 0, 0, 1];

    fn stats(stages: &str) -> Stats {
        let total = r#"{"count": 1000, "p50_ns": 310000, "p99_ns": 1430000}"#;
        let series = format!(r#"{{"count": 1001, "errors": 1, "total": {total}, "stages": {stages}}}"#);
        serde_json::from_str(&format!(r#"{{"covered_ns": 5000000000, "series": [{series}]}}"#)).unwrap()
    }

    const STAGES: &str = r#"{"forward": {"count": 9, "share": 0.412}, "hydration": {"count": 9, "share": 0.05},
        "ingress": {"count": 9, "share": 0.021}, "egress": {"count": 9, "share": 0.0}, "preprocessing": {"count": 9, "share": 0.3},
        "unattributed": {"count": 9, "share": 0.1688}}"#;

    #[test]
    fn the_opening_tells_what_runs_and_what_to_try() {
        let demo = Demo { seconds: Some(15), server: Some((LOCAL, 5000).into()), ..Demo::default() };
        assert_eq!(
            opening(&demo, (LOCAL, 8080).into(), (LOCAL, 9464).into()),
            "lapwing demo: where does an inference request's time go? (ends after 15 s, or with Ctrl-C)\n\
             \x20 model server  http://127.0.0.1:5000, model tickets (ONNX on the CPU), reports by Server-Timing and OTLP\n\
             \x20 lapwing       http://127.0.0.1:8080, in front of it\n\
             \x20 admin         http://127.0.0.1:9464\n\
             \x20 load          50 requests/s from 4 clients, 1 to 128 rows each\n\
             try\n\
             \x20 curl 'http://127.0.0.1:9464/stats'\n\
             \x20 curl 'http://127.0.0.1:9464/exchanges?order=slowest&limit=3'\n"
        );
    }

    #[test]
    fn a_line_names_the_four_largest_stages() {
        assert_eq!(
            line(&stats(STAGES), 20.0, Some(0.625)),
            "  20 s  200.2 requests/s, 1 error, p50 310 µs, p99 1.43 ms: \
             forward 41.2 %, preprocessing 30.0 %, unattributed 16.9 %, hydration 5.0 %; feature cache 62.5 %"
        );
        assert_eq!(line(&Stats::default(), 5.0, None), "   5 s  no requests yet");
        assert!(line(&stats("{}"), 5.0, None).ends_with(": no stages yet"));
    }
}
