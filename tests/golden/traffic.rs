//! The recorded requests: OIP over HTTP and gRPC, chats, embeddings, retries, failures of every kind, long streams, and more
//! routes than there is room for. Every figure comes from a generator with a fixed seed.

use lapwing_ledger::{
    Basis, Deadline, DeadlineSource, ExchangeKind, Generation, Ledger, ObservedEvent as Seen, Outcome, Phase, Report,
    ReportPlace, SeriesKey, Server, SpanId, Stage, TraceId, Unit, UpstreamWindow,
};
use lapwing_metrics::{BatchStatistics, Labels, PolledInterval, PolledStage, PolledSum};

use crate::recording::{Event, Events, MS, WALL_UNIX_NS, at};

const US: u64 = 1_000;
const HTTP: &str = "http://127.0.0.1:8000";
const SECOND: &str = "http://10.0.0.7:9000";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
    }

    /// Around `of`: three quarters of it to twice as much, rarely five times.
    fn around(&mut self, of: u64) -> u64 {
        let spread = of * 3 / 4 + self.next() % (of * 5 / 4).max(1);
        if self.next().is_multiple_of(23) { spread * 5 / 2 } else { spread }
    }
}

/// A request that ended well at `closes_ms` and took `total_ns`: received, admitted, sent, answered, and half of its upstream
/// window reported as forward.
pub(crate) fn request(labels: &Labels, route: &str, model: &str, closes_ms: u64, total_ns: u64) -> Ledger {
    let started_ns = (closes_ms * MS).saturating_sub(total_ns);
    let started = at(0).plus(started_ns);
    let mut ledger = Ledger::open(started, WALL_UNIX_NS + started_ns);
    ledger.series = SeriesKey {
        route: labels.routes.intern(route),
        model: labels.models.intern(model),
        upstream: labels.upstreams.intern(HTTP),
    };
    (ledger.outcome, ledger.status, ledger.total_ns) = (Outcome::Ok, 200, total_ns);
    let id = (closes_ms << 20) ^ total_ns;
    let mut trace = [0x42; 16];
    trace[8..].copy_from_slice(&id.to_be_bytes());
    let mut own = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_be_bytes();
    own[7] = 0;
    (ledger.trace, ledger.span, ledger.parent) = (TraceId(trace), SpanId(own), SpanId([3; 8]));
    let part = |of: u64| started.plus(total_ns * of / 100);
    ledger.observe(Stage::Ingress, Seen::Request, started, part(3));
    ledger.observe(Stage::Validation, Seen::Admit, part(3), part(4));
    ledger.observe(Stage::Unattributed, Seen::Connect, part(4), part(5));
    ledger.observe(Stage::Unattributed, Seen::Send, part(5), part(6));
    let of = |of: u64| total_ns * of / 100;
    ledger.window = Some(UpstreamWindow { start_ns: of(6), head_ns: of(94), end_ns: of(95) });
    ledger.report(Report::of(Stage::Forward, of(44), ReportPlace::Head));
    ledger.observe(Stage::Egress, Seen::Response, part(95), part(100));
    (ledger.request_bytes, ledger.response_bytes) = (1_024 + id % 512, 256 + id % 64);
    ledger
}

/// Every request that has no spans.
pub(crate) fn all(labels: &Labels) -> Events {
    let mut events = Events::new();
    for kind in [infer, grpc, chats, embeddings, failures, streams, awkward, polls] {
        events.extend(kind(labels));
    }
    events
}

fn closed(ms: u64, ledger: Ledger) -> (u64, Event) {
    (ms, Event::Closed(Box::new(ledger)))
}

/// OIP over HTTP with Server-Timing: 1 to 64 rows, two entities per row, some retried, some with reports that do not fit, some with a
/// budget.
fn infer(labels: &Labels) -> Events {
    let mut random = Random(1);
    let make = |n: u64| {
        let ms = 500 + n * 1_900;
        let rows = 1 << (random.next() % 7);
        let mut ledger = request(labels, "POST /v2/models/{model}/infer", "digits", ms, random.around((4_000 + 90 * rows) * US));
        ledger.reports.clear();
        let total = ledger.total_ns;
        let parts = [(Stage::Hydration, 9), (Stage::Preprocessing, 6), (Stage::Queue, n % 9), (Stage::Postprocessing, 4)];
        parts.into_iter().for_each(|(stage, of)| ledger.report(Report::of(stage, total * of / 100, ReportPlace::Head)));
        ledger.report(Report::of(Stage::Forward, total * if n.is_multiple_of(13) { 93 } else { 50 } / 100, ReportPlace::Trailer));
        ledger.work.primary = Some(Unit::Row);
        ledger.work.set(Unit::Row, rows, Basis::Counted);
        ledger.work.set(Unit::Entity, 2 * rows, Basis::Reported);
        ledger.work.set(Unit::Element, 64 * rows, Basis::Counted);
        ledger.work.set(Unit::Flop, 2_500_000 * rows, Basis::Counted);
        ledger.server = Some(Server::KServe);
        if n.is_multiple_of(3) {
            ledger.deadline = Some(Deadline { budget_ns: 8 * MS, source: DeadlineSource::Header });
        }
        if n.is_multiple_of(10) {
            let started = ledger.started;
            ledger.observe(Stage::Unattributed, Seen::Attempt, started.plus(total / 20), started.plus(total / 10));
        }
        if n.is_multiple_of(17) {
            (0..20).for_each(|_| ledger.report(Report::of(Stage::Downstream, 10 * US, ReportPlace::Head)));
        }
        closed(ms, ledger)
    };
    (0..200).map(make).collect()
}

/// OIP over gRPC: batches and queues by the server's statistics; every eighth fails by its trailers.
fn grpc(labels: &Labels) -> Events {
    let mut random = Random(2);
    let make = |n: u64| {
        let ms = 700 + n * 4_100;
        let rows = 1 + random.next() % 32;
        let route = "POST /inference.GRPCInferenceService/ModelInfer";
        let mut ledger = request(labels, route, "resnet", ms, random.around((7_000 + 300 * rows) * US));
        ledger.reports.clear();
        ledger.server = Some(Server::Triton);
        ledger.work.primary = Some(Unit::Row);
        ledger.work.set(Unit::Row, rows, Basis::Counted);
        ledger.work.set(Unit::Byte, 602_112 * rows, Basis::Counted);
        ledger.outcome = match n % 8 {
            3 => Outcome::ClientError,
            6 => Outcome::ServerError,
            _ => Outcome::Ok,
        };
        closed(ms, ledger)
    };
    (0..90).map(make).collect()
}

/// Streamed chats by two servers, with gaps between tokens: by the proxy's clock alone, and with times in the body (whole
/// milliseconds); some broken off, some of two sequences, some answered at once.
fn chats(labels: &Labels) -> Events {
    let mut random = Random(3);
    let make = |n: u64| {
        let ms = 1_300 + n * 4_700;
        let tokens = 2 + random.next() % 60;
        let first = random.around(40 * MS);
        let gaps: Vec<u64> = (1..tokens).map(|_| random.around(9 * MS)).collect();
        let total = first + gaps.iter().sum::<u64>() + 3 * MS;
        let mut ledger = request(labels, "POST /v1/chat/completions", "org/m", ms, total);
        ledger.reports.clear();
        ledger.window = Some(UpstreamWindow { start_ns: total / 50, head_ns: first / 2, end_ns: total - MS });
        ledger.first_byte_ns = first * 9 / 10;
        let mut generation = Generation::default();
        let mut last = first;
        generation.content(first);
        gaps.iter().for_each(|gap| {
            last += gap;
            generation.content(last);
        });
        if n.is_multiple_of(3) {
            ledger.series.upstream = labels.upstreams.intern(SECOND);
            ledger.server = Some(Server::LlamaCpp);
            let body = |stage, phase, ns: u64| Report {
                phase,
                resolution_ns: 1_000_000,
                ..Report::of(stage, ns / MS * MS, ReportPlace::Body)
            };
            ledger.report(body(Stage::Forward, Some(Phase::Prefill), first / 2));
            ledger.report(body(Stage::Forward, Some(Phase::Decode), last - first));
            (generation.server_first_token_ns, generation.server_per_output_token_ns) = (Some(first / 2), Some(8 * MS));
        }
        ledger.work.primary = Some(Unit::OutputToken);
        ledger.work.set(Unit::Row, 1, Basis::Counted);
        ledger.work.set(Unit::InputToken, 100 + 7 * n, if n.is_multiple_of(2) { Basis::Reported } else { Basis::Estimated });
        ledger.work.set(Unit::OutputToken, tokens, if n.is_multiple_of(3) { Basis::Reported } else { Basis::Counted });
        match n % 12 {
            5 => (ledger.outcome, ledger.status) = (Outcome::Cancelled, 200),
            7 => {
                ledger.work.sequences = 2;
                generation.is_of_many();
            }
            9 => generation = Generation { server_first_token_ns: Some(first), ..Generation::default() },
            10 => generation.gaps_dropped = 3,
            _ => {}
        }
        ledger.generation = Some(Box::new(generation));
        closed(ms, ledger)
    };
    (0..75).map(make).collect()
}

/// Embeddings: several prompts at once, whose times come as sums; some without a word on how many there were.
fn embeddings(labels: &Labels) -> Events {
    let mut random = Random(4);
    let make = |n: u64| {
        let ms = 900 + n * 3_300;
        let prompts = 1 + n % 4;
        let mut ledger = request(labels, "POST /embed", "", ms, random.around(12 * MS));
        ledger.reports.clear();
        ledger.server = Some(Server::Tei);
        let sum =
            |stage, ns| Report { is_sum: true, resolution_ns: 1_000_000, ..Report::of(stage, ns * prompts, ReportPlace::Head) };
        ledger.report(sum(Stage::Preprocessing, MS));
        ledger.report(sum(Stage::Queue, (n % 3) * MS));
        ledger.report(sum(Stage::Forward, 5 * MS));
        ledger.work.primary = Some(Unit::InputToken);
        ledger.work.set(Unit::InputToken, 30 * prompts + n, Basis::Reported);
        if !n.is_multiple_of(6) {
            ledger.work.set(Unit::Row, prompts, Basis::Counted);
        }
        closed(ms, ledger)
    };
    (0..100).map(make).collect()
}

/// Every outcome but success, some without an upstream's answer; and an hour that fits no histogram.
fn failures(labels: &Labels) -> Events {
    let mut random = Random(5);
    let mut events = Events::new();
    for (n, outcome) in Outcome::ALL.into_iter().skip(1).cycle().take(48).enumerate() {
        let ms = 2_100 + n as u64 * 7_000;
        let mut ledger = request(labels, "POST /v2/models/{model}/infer", "digits", ms, random.around(3 * MS));
        ledger.outcome = outcome;
        ledger.status = match outcome {
            Outcome::ClientError => 422,
            Outcome::ServerError => 500,
            Outcome::BodyError => 200,
            Outcome::Rejected => 413,
            Outcome::Shed => 503,
            Outcome::Unreachable | Outcome::Broken => 502,
            Outcome::TimedOut => 504,
            _ => 0,
        };
        if matches!(outcome, Outcome::Rejected | Outcome::Shed | Outcome::Unreachable) {
            ledger.window = None;
            ledger.reports.clear();
        }
        events.push(closed(ms, ledger));
    }
    let mut long = request(labels, "POST /v2/models/{model}/infer", "digits", 333_333, 4_000_000 * MS);
    long.work.primary = Some(Unit::Row);
    long.work.set(Unit::Row, 1, Basis::Counted);
    events.push(closed(333_333, long));
    // work in another unit than the series counts in
    let mut mixed = request(labels, "POST /v2/models/{model}/infer", "digits", 333_400, 5 * MS);
    mixed.work.primary = Some(Unit::Byte);
    mixed.work.set(Unit::Byte, 9, Basis::Counted);
    events.push(closed(333_400, mixed));
    events.push(closed(333_500, request(labels, "GET /healthz", "", 333_500, 0)));
    events
}

/// Upgraded connections and gRPC calls that stay open.
fn streams(labels: &Labels) -> Events {
    let make = |n: u64| {
        let ms = 60_000 + n * 30_000;
        let mut ledger = request(labels, "GET /v1/realtime", "org/m", ms, (5 + n * 11) * 1_000 * MS);
        (ledger.kind, ledger.status, ledger.request_bytes, ledger.response_bytes) =
            (ExchangeKind::Stream, 101, 70_000 * n, 9_000_000);
        if n % 3 == 2 {
            ledger.outcome = Outcome::Cancelled;
        }
        closed(ms, ledger)
    };
    (0..10).map(make).collect()
}

/// A route with everything that text formats must escape; a client that reads slowly; pipelining; and more routes than there
/// is room for.
fn awkward(labels: &Labels) -> Events {
    let mut events = Events::new();
    for n in 0..6 {
        let ms = 345_000 + n * 500;
        let mut ledger = request(labels, "GET /a \"b\" \\c,d\ne=é", "m\u{1}\"", ms, (3 + n) * MS);
        let (started, total) = (ledger.started, ledger.total_ns);
        ledger.observe(Stage::Egress, Seen::Backpressure, started.plus(total / 2), started.plus(total * 3 / 4));
        ledger.observe(Stage::Queue, Seen::Pipelined, started, started.plus(total / 50));
        events.push(closed(ms, ledger));
    }
    for n in 0..20_u64 {
        let ms = 350_000 + n * 100;
        events.push(closed(ms, request(labels, &format!("GET /pages/{n}/edit"), "", ms, (n + 1) * 100 * US)));
    }
    events
}

/// What polls of the servers' statistics find: batches and queues of one model, phases of another, and the server as a whole.
fn polls(_: &Labels) -> Events {
    let mut events = Events::new();
    for n in (0..30_u32).chain(68..71) {
        let (ms, step) = (u64::from(n) * 5_000, u64::from(n));
        let time = |stage, phase, requests, mean_ns: u64| PolledStage {
            stage,
            phase,
            sum: PolledSum { requests, ns: requests * mean_ns },
        };
        let interval = |stages, batch| PolledInterval { covered_ns: 5_000 * MS, stages, batch };
        let batch = BatchStatistics {
            size: Some(2.0 + f64::from(n) / 8.0),
            padding: Some(0.125),
            running: Some(3.0),
            waiting: Some(f64::from(n % 4)),
        };
        let stages =
            vec![time(Stage::Queue, None, 9, 300 * US + step * 11 * US), time(Stage::Forward, None, 8, 4 * MS + step * 70 * US)];
        events.push((ms, Event::Polled(HTTP, Some("resnet"), interval(stages, Some(batch)))));
        if n > 20 {
            events.push((ms, Event::Polled(HTTP, None, interval(vec![time(Stage::Queue, None, 2, MS)], None))));
            let phases = [(Phase::Prefill, 20 * MS), (Phase::Decode, 300 * MS)];
            let stages = phases.into_iter().map(|(phase, ns)| time(Stage::Forward, Some(phase), 3, ns)).collect();
            events.push((ms, Event::Polled(SECOND, Some("org/m"), interval(stages, None))));
        }
    }
    events
}
