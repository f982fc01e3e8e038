//! Finds what is missing, and reports it.

use super::history::{CounterGrowth, CounterHistory};
use super::table::{GAPS, GapRule};
use super::{CertificateValidity, GapCause, TelemetryGap, TelemetrySources};
use crate::outcomes::Unread;
use lapwing_attribution::otlp::RefusalCause;
use lapwing_ledger::{Server, Stamp, clock};
use lapwing_metrics::Counter;

/// Of fewer requests nothing is said: their spans may still be on their way.
const MIN_REQUESTS: u64 = 20;
/// The share of requests from which on it is said that they could not be read.
const MIN_SHARE: f64 = 0.2;
/// The share of requests of which a server reports nothing, from which on it is said.
const UNREPORTED_SHARE: f64 = 0.5;
/// Of a certificate's life, the part of which less is left when it is said: tools renew after two thirds.
const LIFE_LEFT: u64 = 10;

/// What the series count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeriesGaps {
    /// Requests that ended well, and of how many of them something could not be read.
    pub(crate) well: u64,
    pub(crate) unread: [u64; Unread::COUNT],
    /// Requests that ended, however they did.
    pub(crate) ended: u64,
    /// The server that was recognised.
    pub(crate) server: Option<Server>,
}

/// Watches for what is missing.
#[derive(Debug)]
pub(crate) struct GapWatch {
    sources: TelemetrySources,
    history: CounterHistory,
    logged: Vec<GapCause>,
}

impl GapWatch {
    pub(crate) fn new(sources: TelemetrySources) -> Self {
        Self { sources, history: CounterHistory::default(), logged: Vec::new() }
    }

    /// Lets time pass.
    pub(crate) fn tick(&mut self, now: Stamp) {
        self.history.record(&self.sources.counters, now);
    }

    /// What is missing since `from`, the most serious first.
    pub(crate) fn find(&self, series: &SeriesGaps, from: Stamp) -> Vec<TelemetryGap> {
        let growth = self.history.growth(&self.sources.counters, from);
        let mut gaps: Vec<TelemetryGap> = GAPS.iter().filter_map(|rule| self.of_counters(rule, &growth)).collect();
        gaps.extend(self.of_settings(series));
        gaps.extend(self.of_certificates(clock::unix_ns() / 1_000_000_000));
        gaps.extend(self.of_exports(&growth));
        gaps.extend(of_bodies(series));
        let has_reason = |gap: &TelemetryGap| {
            use GapCause::{ExportsRefused, SpansLost, SpansUnmatched, TraceSamplingOff, TracingOff};
            [TracingOff, TraceSamplingOff, ExportsRefused, SpansUnmatched, SpansLost].contains(&gap.cause)
        };
        if !gaps.iter().any(has_reason) {
            gaps.extend(self.of_reports(series));
        }
        gaps.sort_by_key(|gap| gap.cause);
        gaps
    }

    /// Lines for the log: those of `gaps` whose cause was not logged yet. Refused exports are logged where they are refused.
    pub(crate) fn take_for_log(&mut self, gaps: &[TelemetryGap]) -> Vec<String> {
        let is_new = |gap: &&TelemetryGap| gap.cause != GapCause::ExportsRefused && !self.logged.contains(&gap.cause);
        let new: Vec<&TelemetryGap> = gaps.iter().filter(is_new).collect();
        let lines = new.iter().map(|gap| format!("{}; {}", gap.sentence, gap.change)).collect();
        let causes: Vec<GapCause> = new.iter().map(|gap| gap.cause).collect();
        self.logged.extend(causes);
        lines
    }

    fn of_counters(&self, rule: &GapRule, growth: &CounterGrowth) -> Option<TelemetryGap> {
        let (mut count, arrived) = (growth.sum(rule.missing), growth.sum(rule.arrived));
        // spans wait a minute for their request before they count as unmatched; where none was ever joined, those that wait are no others
        if rule.cause == GapCause::SpansUnmatched && self.sources.counters.get(Counter::SpansJoined) == 0 {
            let waiting = self.sources.counters.get(Counter::OrphanSpans);
            count = count.saturating_add(waiting);
        }
        let of = count.saturating_add(arrived);
        let is_enough = count >= rule.least && (rule.arrived.is_empty() || share(count, of) >= rule.least_share);
        is_enough.then(|| {
            let of = (!rule.arrived.is_empty()).then_some(of);
            gap(rule.cause, rule.sentence, count, of, rule.change)
        })
    }

    fn of_settings(&self, series: &SeriesGaps) -> Vec<TelemetryGap> {
        let settings = self.sources.settings.load();
        let of_all = |cause, sentence, change| gap(cause, sentence, series.ended, Some(series.ended), change);
        let mut gaps = Vec::new();
        if series.ended == 0 {
            return gaps;
        }
        if !settings.receives_spans {
            gaps.push(of_all(
                GapCause::TracingOff,
                "tracing is off, because both OTLP receivers are: no span can arrive, and the trace ids of {count} of {of} requests are zeros",
                "set otlp_grpc or otlp_http to an address, such as otlp_grpc: 127.0.0.1:4317",
            ));
        } else if !settings.samples_traces {
            gaps.push(of_all(
                GapCause::TraceSamplingOff,
                "tracing is off, because trace_sampling is: no span is joined, and the trace ids of {count} of {of} requests are zeros",
                "set trace_sampling to auto",
            ));
        }
        if !settings.reads_bodies {
            gaps.push(of_all(
                GapCause::BodiesOff,
                "no body is read, because protocol.read_bodies is off: model, work and tokens of {count} of {of} requests are unknown",
                "set protocol.read_bodies to true",
            ));
        }
        gaps
    }

    /// Certificates that were not renewed in time: less than a tenth of their life is left.
    pub(crate) fn of_certificates(&self, now_s: u64) -> Vec<TelemetryGap> {
        let one = |one: &CertificateValidity| {
            let (left_s, life_s) = (one.until_s.saturating_sub(now_s), one.until_s.saturating_sub(one.from_s));
            let when = match left_s {
                0 => "has expired".to_owned(),
                1..7_200 => format!("expires in {} minutes", left_s / 60),
                7_200..172_800 => format!("expires in {} hours", left_s / 3_600),
                _ => format!("expires in {} days", left_s / 86_400),
            };
            let sentence = format!("the certificate of {} {when}: whoever checks it is lost then", one.section);
            let change = "renew it: what renews the file has failed, or nothing does; a new file is read where it lies";
            (left_s < life_s / LIFE_LEFT).then(|| gap(GapCause::CertificateExpires, &sentence, 1, None, change))
        };
        self.sources.certificates.load().iter().filter_map(one).collect()
    }

    fn of_exports(&self, growth: &CounterGrowth) -> Vec<TelemetryGap> {
        let all: Vec<Counter> = RefusalCause::ALL.into_iter().map(RefusalCause::counter).collect();
        let came = growth.sum(&all).saturating_add(growth.sum(&[Counter::OtlpTaken]));
        let one = |cause: RefusalCause| {
            let count = growth.sum(&[cause.counter()]);
            let had = self.sources.refusals.latest(cause).map_or_else(String::new, |had| format!(" (the latest: {had})"));
            let sentence = format!("{{count}} of {{of}} OTLP exports were refused, because {}{had}", plural(cause));
            (count > 0).then(|| gap(GapCause::ExportsRefused, &sentence, count, Some(came), cause.change()))
        };
        let mut gaps: Vec<TelemetryGap> = RefusalCause::ALL.into_iter().filter_map(one).collect();
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.count));
        gaps
    }

    /// What the server could report and does not.
    fn of_reports(&self, series: &SeriesGaps) -> Option<TelemetryGap> {
        let (count, of) = (series.unread[Unread::Stages as usize], series.well);
        if of < MIN_REQUESTS || share(count, of) < UNREPORTED_SHARE {
            return None;
        }
        let name = series.server.map_or("NAME", Server::name);
        let flags = format!("`lapwing upstream-flags {name}` says how to turn its reporting on");
        let has_spans = self.sources.counters.get(Counter::SpansReceived) > 0;
        if let Some(server) = series.server.filter(|server| server.sends_spans() && !has_spans) {
            let sentence = format!(
                "no span has come from {}, which can send them, and {{count}} of {{of}} answers report nothing of the server's time",
                server.title()
            );
            return Some(gap(GapCause::NoSpans, &sentence, count, Some(of), &flags));
        }
        let server = series.server.map_or("the server", Server::title);
        let sentence =
            format!("{server} reports nothing of its time for {{count}} of {{of}} answers: inside it no stage is known");
        Some(gap(GapCause::NothingReported, &sentence, count, Some(of), &flags))
    }
}

/// What could not be read of bodies.
fn of_bodies(series: &SeriesGaps) -> Vec<TelemetryGap> {
    let one = |(unread, cause, sentence, change)| {
        let (count, of) = (series.unread[unread as usize], series.well);
        (count > 0 && share(count, of) >= MIN_SHARE).then(|| gap(cause, sentence, count, Some(of), change))
    };
    let rows = [
        (
            Unread::CompressedResponse,
            GapCause::CompressedAnswers,
            "{count} of {of} answers were not read, because they are compressed in a way that is not read: tokens and outputs are unknown",
            "let the server answer without compression, or with gzip: Lapwing passes the client's Accept-Encoding on, so leave the others out of it",
        ),
        (
            Unread::ResponseBody,
            GapCause::AnswersUnread,
            "{count} of {of} answers were not read, because their media type is none that their route is read in: tokens and outputs are unknown",
            "let the server name the type of its answers (Content-Type: application/json or text/event-stream)",
        ),
        (
            Unread::RequestBody,
            GapCause::RequestsUnread,
            "{count} of {of} requests were not read, because of their media type or their compression: model and work are unknown",
            "let clients send JSON uncompressed and name its type (Content-Type: application/json)",
        ),
        (
            Unread::Tokens,
            GapCause::TokensEstimated,
            "the tokens of {count} of {of} requests are estimated from bytes, right to an order of magnitude",
            "let the server report its usage (stream_options.include_usage), or name the model's tokenizer.json in protocol.tokenizers",
        ),
    ];
    rows.into_iter().filter_map(one).collect()
}

/// Why exports are refused, of several.
const fn plural(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::ContentType => "their content type is no form of OTLP",
        RefusalCause::ContentEncoding => "they are compressed in a way that is not read",
        RefusalCause::TooLarge => "they are too large",
        RefusalCause::Undecodable => "they cannot be decoded",
        RefusalCause::TooSlow => "they did not come in time",
        RefusalCause::WrongPath => "they were sent to a path or a port that is none of OTLP's",
    }
}

fn share(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

fn gap(cause: GapCause, sentence: &str, count: u64, of: Option<u64>, change: &str) -> TelemetryGap {
    let whole = of.map_or_else(String::new, |of| of.to_string());
    let sentence = sentence.replace("{count}", &count.to_string()).replace("{of}", &whole);
    TelemetryGap { cause, sentence, count, of, change: change.to_owned() }
}
