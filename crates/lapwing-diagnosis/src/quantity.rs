//! The quantities that rules use, as they are measured in a window.

use super::arrivals::ArrivalPattern;
use super::attribution::{Attribution, Culprit};
use super::part::{Part, PartSet};
use super::samples::{Mean, Sample, Samples};
use super::stalls::Stalls;
use lapwing_ledger::{Annotation, Stamp};

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A share or a ratio.
    Ratio,
    /// Seconds.
    Seconds,
    /// A number of requests.
    Requests,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// A plain number.
    Number,
}

impl Form {
    /// The unit in JSON.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Seconds => "seconds",
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes per second",
            Self::Number => "number",
        }
    }
}

macro_rules! quantities {
    ($($name:ident $text:literal $form:ident $what:literal;)*) => {
        /// A measured quantity. NaN means "unknown", and no condition holds for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Quantity { $(#[doc = $what] $name,)* }

        impl Quantity {
            /// All quantities, in the order of their places.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in rules, texts and docs/DIAGNOSIS.md.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it is, in words.
            pub(crate) const fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// How it is written.
            pub(crate) const fn form(self) -> Form {
                match self { $(Self::$name => Form::$form,)* }
            }
        }
    };
}

quantities! {
    AfterIdleShare "after_idle_share" Ratio "share of the time in question in requests that came within 3 s after idle time";
    AfterIdleRequests "after_idle_requests" Ratio "share of all requests that came within 3 s after idle time";
    ColdGaps "cold_gaps" Ratio "share of the times after idle time whose very first requests were slow other than by waiting";
    IdleGaps "idle_gaps" Requests "times that requests came after idle time, or after the start";
    StalledShare "stalled_share" Ratio "share of the time in question in which no request at all ended, beyond chance";
    Stalls "stalls" Requests "stalls";
    StallLength "stall_length" Seconds "mean length of a stall";
    StallRequests "stall_requests" Requests "requests in question for each stall";
    StallPeriod "stall_period" Seconds "median time from one stall to the next";
    Dispersion "dispersion" Number "index of dispersion of arrivals, which is 1 for arrivals at random";
    Bursts "bursts" Requests "bursts of arrivals";
    BurstSize "burst_size" Requests "mean size of a burst";
    BurstPeriod "burst_period" Seconds "median time from one burst to the next";
    Rate "rate" Number "arrivals per second";
    QueuedShare "queued_share" Ratio "share of all requests that waited for more than a tenth of their time";
    Concurrency "concurrency" Requests "requests in flight at the arrival of those in question";
    MissRate "miss_rate" Ratio "share of the looked-up features that the cache did not have";
    SlowMissRate "slow_miss_rate" Ratio "the same, of requests in question";
    MissTrend "miss_trend" Ratio "rise of the miss rate from the first half of the window to the second";
    MissRatio "miss_ratio" Ratio "misses of a request in question, over those of a usual one";
    MissTime "miss_time" Seconds "hydration for each missed feature, of requests in question";
    MissTimeRatio "miss_time_ratio" Ratio "hydration for each missed feature of requests in question, over that of others";
    WorkShare "work_share" Ratio "share of the time in question that comes from more work than usual";
    WorkRatio "work_ratio" Ratio "work of requests in question, over the median";
    PerUnitRatio "per_unit_ratio" Ratio "forward for each unit of work of requests in question, over that of the body";
    PerUnitChange "per_unit_change" Ratio "forward for each unit of work of requests with more than the median's work, over that of the others";
    TransferBytes "transfer_bytes" Bytes "body bytes of requests in question and their answers";
    TransferRate "transfer_rate" BytesPerSecond "body bytes of requests in question over the time that they were on their way";
    BytesPerUnit "bytes_per_unit" Bytes "body bytes for each unit of work, of requests in question";
    EdgeFloor "edge_floor" Ratio "time at the edges of the upstream window of the tenth that has least, over the mean";
    EdgeTime "edge_time" Seconds "mean time at the edges of the upstream window";
    SplitShare "split_share" Ratio "share of all answers whose head and body came apart";
    SplitHelped "split_helped" Requests "split answers that were acknowledged at once";
    SplitUnhelped "split_unhelped" Requests "split answers that were left without help";
    SplitWait "split_wait" Seconds "mean time from head to body of split answers that were left without help";
    SplitSaved "split_saved" Seconds "the same, beyond that of answers that were helped";
    SplitSavedShare "split_saved_share" Ratio "the share of that in the time from head to body";
    NewUpstreamShare "new_upstream_share" Ratio "share of all requests for which a connection to the upstream was made";
    ConnectTime "connect_time" Seconds "mean time until a connection to the upstream was made, of the requests that waited for it";
    NewClientShare "new_client_share" Ratio "share of all requests that were the first on their client's connection";
    ExpectShare "expect_share" Ratio "share of all requests that asked for `100 Continue`";
    ExpectWait "expect_wait" Seconds "mean time from the first byte to the last one of those requests";
    JsonShare "json_share" Ratio "share of all requests whose tensors came as JSON though a binary form exists";
    JsonBytes "json_bytes" Bytes "mean body of the requests whose tensors came as JSON";
    CompressedShare "compressed_share" Ratio "share of all requests with a compressed body";
    FlowControlShare "flow_control_share" Ratio "share of all requests whose answer waited for the client's HTTP/2 window";
    FlowControlWait "flow_control_wait" Seconds "mean egress of those requests";
}

/// How long after idle time a request counts as one of the first, in nanoseconds.
const AFTER_IDLE_NS: u64 = 3_000_000_000;
/// How long after the first request another one counts as first too, in nanoseconds.
const VERY_FIRST_NS: u64 = 200_000_000;
const QUEUES: PartSet = PartSet::of(&[Part::Queue, Part::OwnQueue]);
const UPLOAD: PartSet = PartSet::of(&[Part::Ingress, Part::Send]);
const DOWNLOAD: PartSet = PartSet::of(&[Part::Egress, Part::Backpressure]);
const TRANSFER: PartSet = UPLOAD.with(DOWNLOAD);
const ON_THE_WAY: PartSet = TRANSFER.with(PartSet::of(&[Part::Edge, Part::Unreported]));

/// The measured quantities of a window.
#[derive(Clone, Debug)]
pub(crate) struct Quantities(Vec<f64>);

impl Quantities {
    /// The value; NaN if it is unknown.
    pub(crate) fn get(&self, quantity: Quantity) -> f64 {
        self.0.get(quantity as usize).copied().unwrap_or(f64::NAN)
    }

    fn set(&mut self, quantity: Quantity, value: f64) {
        if let Some(place) = self.0.get_mut(quantity as usize) {
            *place = if value.is_finite() { value } else { f64::NAN };
        }
    }

    /// Measures all of them.
    pub(crate) fn of(samples: &Samples<'_>, found: &Attribution<'_>, arrivals: &ArrivalPattern, stalls: &Stalls) -> Self {
        let mut all = Self(vec![f64::NAN; Quantity::ALL.len()]);
        all.set(Quantity::StalledShare, stalls.share);
        all.set(Quantity::Stalls, stalls.count as f64);
        all.set(Quantity::StallRequests, stalls.requests);
        all.set(Quantity::StallLength, stalls.length_ns / 1e9);
        all.set(Quantity::StallPeriod, stalls.period_ns / 1e9);
        all.set(Quantity::Dispersion, arrivals.dispersion);
        all.set(Quantity::Bursts, arrivals.bursts as f64);
        all.set(Quantity::BurstSize, arrivals.burst_size);
        all.set(Quantity::BurstPeriod, arrivals.burst_period_ns / 1e9);
        all.set(Quantity::Rate, arrivals.rate);
        all.measure_idle(samples, &found.culprits, arrivals);
        all.measure_cache(samples, &found.culprits);
        all.measure_work(samples, found);
        all.measure_transfer(samples, &found.culprits);
        all.measure_annotations(samples);
        all
    }

    fn measure_idle(&mut self, samples: &Samples<'_>, culprits: &[Culprit<'_>], arrivals: &ArrivalPattern) {
        let after = |stamp: Stamp, within_ns: u64| {
            let at = arrivals.after_idle.partition_point(|(first, _)| *first <= stamp);
            let first = at.checked_sub(1).and_then(|at| arrivals.after_idle.get(at))?.0;
            (stamp.since(first) <= within_ns).then_some(at)
        };
        let (mut share, mut requests) = (Mean::default(), Mean::default());
        let mut cold = vec![false; arrivals.after_idle.len() + 1];
        for culprit in culprits {
            let arrived = culprit.sample.seen.arrived;
            let is_after = after(arrived, AFTER_IDLE_NS).is_some();
            share.add(f64::from(u8::from(is_after)), culprit.excess_ns * culprit.sample.weight);
            if let Some(at) = after(arrived, VERY_FIRST_NS) {
                // who waits behind others after idle time is in a burst
                let is_alone = (1..=2).contains(&culprit.sample.seen.in_flight);
                cold[at] |= is_alone || QUEUES.sum(&culprit.parts) < 0.5 * culprit.excess_ns;
            }
        }
        for sample in samples.iter() {
            requests.add(f64::from(u8::from(after(sample.seen.arrived, AFTER_IDLE_NS).is_some())), sample.weight);
        }
        let gaps = arrivals.after_idle.len() as f64;
        self.set(Quantity::AfterIdleShare, share.get());
        self.set(Quantity::AfterIdleRequests, requests.get());
        self.set(Quantity::IdleGaps, gaps);
        self.set(Quantity::ColdGaps, cold.into_iter().filter(|is_cold| *is_cold).count() as f64 / gaps);
    }

    fn measure_cache(&mut self, samples: &Samples<'_>, culprits: &[Culprit<'_>]) {
        let asked = |sample: &Sample<'_>| f64::from(sample.seen.cache_hits) + f64::from(sample.seen.cache_misses);
        let middle = samples.iter().map(|sample| sample.seen.arrived).min().zip(samples.iter().map(|s| s.seen.arrived).max());
        let middle = middle.map_or(Stamp::default(), |(first, last)| first.plus(last.since(first) / 2));
        let (mut rate, mut halves, mut usual, mut slow) =
            (Mean::default(), [Mean::default(); 2], Mean::default(), Mean::default());
        let (mut slow_rate, mut miss_time, mut slow_time) = (Mean::default(), Mean::default(), Mean::default());
        let hydration = Part::Hydration as usize;
        let threshold = culprits.iter().map(|culprit| culprit.sample.seen.total_ns).min().unwrap_or(u64::MAX);
        for sample in samples.iter().filter(|sample| asked(sample) > 0.0) {
            let misses = f64::from(sample.seen.cache_misses);
            let weight = asked(sample) * sample.weight;
            rate.add(misses / asked(sample), weight);
            halves[usize::from(sample.seen.arrived > middle)].add(misses / asked(sample), weight);
            usual.add(misses, sample.weight);
            if misses > 0.0 && sample.seen.total_ns < threshold {
                miss_time.add(sample.seen.parts()[hydration] / misses, misses * sample.weight);
            }
        }
        for culprit in culprits.iter().filter(|culprit| asked(&culprit.sample) > 0.0) {
            let misses = f64::from(culprit.sample.seen.cache_misses);
            let weight = culprit.parts[hydration] * culprit.sample.weight;
            slow.add(misses, weight);
            slow_rate.add(misses / asked(&culprit.sample), weight);
            if misses > 0.0 {
                slow_time.add(culprit.sample.seen.parts()[hydration] / misses, misses * weight);
            }
        }
        self.set(Quantity::MissRate, rate.get());
        self.set(Quantity::SlowMissRate, slow_rate.get());
        self.set(Quantity::MissTrend, halves[1].get() - halves[0].get());
        self.set(Quantity::MissRatio, slow.get() / usual.get());
        self.set(Quantity::MissTime, slow_time.get() / 1e9);
        self.set(Quantity::MissTimeRatio, slow_time.get() / miss_time.get());
    }

    fn measure_work(&mut self, samples: &Samples<'_>, found: &Attribution<'_>) {
        let forward = Part::Forward as usize;
        let (mut work, mut per_unit, mut usual) = (Mean::default(), Mean::default(), Mean::default());
        let (mut concurrency, mut queued) = (Mean::default(), Mean::default());
        for culprit in &found.culprits {
            let seen = culprit.sample.seen;
            let weight = culprit.excess_ns * culprit.sample.weight;
            if seen.work() > 0.0 {
                work.add(seen.work(), weight);
                per_unit.add(seen.parts()[forward] / seen.work(), weight);
            }
            if seen.in_flight > 0 {
                concurrency.add(f64::from(seen.in_flight), weight);
            }
        }
        let body = samples.between(0.25, 0.75);
        for sample in body.iter().filter(|sample| sample.seen.work() > 0.0) {
            usual.add(sample.seen.parts()[forward] / sample.seen.work(), sample.weight * sample.seen.work());
        }
        let mut works: Vec<(f64, f64)> = samples.iter().map(|sample| (sample.seen.work(), sample.weight)).collect();
        works.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0.0;
        let median = works.iter().find(|(_, weight)| {
            below += weight;
            below >= samples.weight() / 2.0
        });
        for sample in samples.iter() {
            let waited = QUEUES.sum(&sample.seen.parts());
            queued.add(f64::from(u8::from(waited > 0.1 * sample.seen.total_ns as f64)), sample.weight);
        }
        let median = median.map_or(f64::NAN, |(work, _)| *work);
        let (mut larger, mut smaller) = (Mean::default(), Mean::default());
        for sample in samples.iter().filter(|sample| sample.seen.work() > 0.0) {
            let (work, half) = (sample.seen.work(), if sample.seen.work() > median { &mut larger } else { &mut smaller });
            half.add(sample.seen.parts()[forward] / work, sample.weight * work);
        }
        self.set(Quantity::PerUnitChange, larger.get() / smaller.get());
        self.set(Quantity::WorkShare, found.by_work_ns / found.total_ns());
        self.set(Quantity::WorkRatio, work.get() / median);
        self.set(Quantity::PerUnitRatio, per_unit.get() / usual.get());
        self.set(Quantity::Concurrency, concurrency.get());
        self.set(Quantity::QueuedShare, queued.get());
    }

    fn measure_transfer(&mut self, samples: &Samples<'_>, culprits: &[Culprit<'_>]) {
        let (mut bytes, mut per_unit, mut time) = (Mean::default(), Mean::default(), Mean::default());
        for culprit in culprits {
            let (seen, parts) = (culprit.sample.seen, culprit.sample.seen.parts());
            let weight = ON_THE_WAY.sum(&culprit.parts) * culprit.sample.weight;
            let is_upload = UPLOAD.sum(&culprit.parts) >= DOWNLOAD.sum(&culprit.parts);
            let of_way = if is_upload { seen.request_bytes() } else { seen.response_bytes() };
            let way = if is_upload { UPLOAD } else { DOWNLOAD };
            bytes.add(seen.request_bytes() + seen.response_bytes(), weight);
            per_unit.add((seen.request_bytes() + seen.response_bytes()) / seen.work().max(1.0), weight);
            time.add(of_way / way.sum(&parts).max(1.0) * 1e9, weight);
        }
        self.set(Quantity::TransferBytes, bytes.get());
        self.set(Quantity::BytesPerUnit, per_unit.get());
        self.set(Quantity::TransferRate, time.get());
        let mut edges: Vec<(f64, f64)> = samples.iter().map(|s| (s.seen.parts()[Part::Edge as usize], s.weight)).collect();
        edges.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mean = edges.iter().map(|(ns, weight)| ns * weight).sum::<f64>() / samples.weight();
        let mut below = 0.0;
        let floor = edges.iter().find(|(_, weight)| {
            below += weight;
            below >= 0.1 * samples.weight()
        });
        self.set(Quantity::EdgeTime, mean / 1e9);
        self.set(Quantity::EdgeFloor, floor.map_or(f64::NAN, |(ns, _)| *ns) / mean);
    }

    fn measure_annotations(&mut self, samples: &Samples<'_>) {
        let mut shares = [Mean::default(); 7];
        let [mut helped, mut unhelped, mut connect, mut expect, mut json_bytes, mut window] = [Mean::default(); 6];
        for sample in samples.iter() {
            let seen = sample.seen;
            let is_unhelped = seen.has(Annotation::Unhelped);
            let is_split = seen.has(Annotation::SplitWrite) || is_unhelped;
            let has = [
                is_split,
                seen.has(Annotation::NewUpstreamConnection),
                seen.has(Annotation::NewClientConnection),
                seen.has(Annotation::JsonTensors),
                seen.has(Annotation::CompressedRequest),
                seen.has(Annotation::ExpectContinue),
                seen.has(Annotation::FlowControl),
            ];
            let parts = seen.parts();
            if seen.has(Annotation::NewUpstreamConnection) {
                connect.add(parts[Part::Connect as usize], sample.weight);
            }
            if seen.has(Annotation::ExpectContinue) {
                expect.add(parts[Part::Ingress as usize], sample.weight);
            }
            if seen.has(Annotation::FlowControl) {
                window.add(DOWNLOAD.sum(&parts), sample.weight);
            }
            if seen.has(Annotation::JsonTensors) {
                json_bytes.add(seen.request_bytes(), sample.weight);
            }
            shares.iter_mut().zip(has).for_each(|(share, has)| share.add(f64::from(u8::from(has)), sample.weight));
            let is_helped = seen.has(Annotation::QuickAck) && !is_unhelped;
            if is_helped {
                helped.add(seen.body_gap_ns(), sample.weight);
            } else if is_split {
                unhelped.add(seen.body_gap_ns(), sample.weight);
            }
        }
        let [split, upstream, client, json, compressed, expecting, flow_control] = shares.map(Mean::get);
        self.set(Quantity::SplitShare, split);
        self.set(Quantity::NewUpstreamShare, upstream);
        self.set(Quantity::NewClientShare, client);
        self.set(Quantity::JsonShare, json);
        self.set(Quantity::CompressedShare, compressed);
        self.set(Quantity::ExpectShare, expecting);
        self.set(Quantity::FlowControlShare, flow_control);
        self.set(Quantity::FlowControlWait, window.get() / 1e9);
        self.set(Quantity::ExpectWait, expect.get() / 1e9);
        self.set(Quantity::ConnectTime, connect.get() / 1e9);
        self.set(Quantity::JsonBytes, json_bytes.get());
        self.set(Quantity::SplitHelped, helped.weight());
        self.set(Quantity::SplitUnhelped, unhelped.weight());
        self.set(Quantity::SplitWait, unhelped.get() / 1e9);
        self.set(Quantity::SplitSavedShare, 1.0 - helped.get() / unhelped.get());
        self.set(Quantity::SplitSaved, (unhelped.get() - helped.get()) / 1e9);
    }
}
