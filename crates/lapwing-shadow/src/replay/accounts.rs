//! The accounts of a replay: closed ledgers and spans in, pairs out, each of them written down if the user asks for it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;

use super::receiver::SpanReceiver;
use super::schedule::{DueTimes, Durations};
use crate::copying::ComparedOutputs;
use crate::pairs::{PairHalf, PairTable, SideAccount};
use crate::recording::{PairEvent, PairsHeader, to_line};
use lapwing_attribution::Aggregator;
use lapwing_ledger::{Exchange, LabelId, Ledger, Outcome, Stamp, WallClock};
use lapwing_metrics::{Labels, Registry};

/// How many messages of spans are taken in one poll.
const SPAN_MESSAGES: usize = 64;

/// The file of pairs.
pub(crate) struct PairsFile(BufWriter<File>);

impl PairsFile {
    /// # Errors
    ///
    /// If the file exists, or cannot be written.
    pub(crate) fn create(path: &Path, header: &PairsHeader) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut file = BufWriter::new(file);
        file.write_all(&to_line(header)?)?;
        Ok(Self(file))
    }
}

/// What becomes known of pairs, in order.
pub(crate) struct Accounts {
    pub(crate) aggregator: Aggregator,
    /// Where the targets' spans come from, if they are received.
    pub(crate) receiver: Option<SpanReceiver>,
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) pairs: Arc<Mutex<PairTable>>,
    pub(crate) labels: Arc<Labels>,
    pub(crate) started: Stamp,
    pub(crate) due: DueTimes,
    /// What answered requests took from the time at which they were due, by target.
    pub(crate) from_due: Vec<(LabelId, Durations)>,
    /// The label of the first target, if the others are compared with it.
    pub(crate) baseline: Option<LabelId>,
    /// The labels of the targets that are compared.
    pub(crate) targets: Vec<LabelId>,
    /// What was recorded, by request, if that is compared with.
    pub(crate) recorded: Vec<Option<SideAccount>>,
    pub(crate) ledgers: Arc<ArrayQueue<Box<Ledger>>>,
    pub(crate) compared: Arc<ArrayQueue<ComparedOutputs>>,
    pub(crate) file: Option<PairsFile>,
    /// Exchanges that were taken.
    pub(crate) taken: u64,
}

impl Accounts {
    /// Takes what has come.
    ///
    /// # Errors
    ///
    /// If the file of pairs cannot be written.
    pub(crate) fn poll(&mut self) -> io::Result<()> {
        let (now, wall) = (Stamp::now(), WallClock::read());
        let mut merged = Vec::new();
        while let Some(mut ledger) = self.ledgers.pop() {
            ledger.anchor_unix_ns = wall.unix_ns(ledger.started);
            // a recording's names are known to be real
            self.labels.name(&mut ledger, now, true);
            self.aggregator.ledger(ledger, now, &mut |exchange| merged.push(exchange));
        }
        // so many at a time: a flood of spans must not keep ledgers waiting
        for _ in 0..SPAN_MESSAGES {
            let Some(spans) = self.receiver.as_mut().and_then(SpanReceiver::take) else { break };
            self.aggregator.spans(spans, now, &mut |exchange| merged.push(exchange));
        }
        self.aggregator.tick(now, &mut |exchange| merged.push(exchange));
        self.aggregator.mend(&mut |exchange| self.registry.lock().mend(exchange));
        self.take(merged, now)
    }

    /// Merges what waits, and ends.
    ///
    /// # Errors
    ///
    /// As for [`Self::poll`].
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.poll()?;
        let (now, mut merged) = (Stamp::now(), Vec::new());
        self.aggregator.flush(now, &mut |exchange| merged.push(exchange));
        self.take(merged, now)?;
        self.apply(&PairEvent::End { t_ns: Stamp::now().since(self.started) })?;
        self.file.as_mut().map_or(Ok(()), |file| file.0.flush())
    }

    fn take(&mut self, merged: Vec<Exchange>, now: Stamp) -> io::Result<()> {
        let t_ns = now.since(self.started);
        for exchange in merged {
            self.taken += 1;
            self.exchange(&exchange, t_ns)?;
            self.registry.lock().record_recent(exchange, now, 0);
        }
        while let Some(ComparedOutputs { pair, target, verdict, .. }) = self.compared.pop() {
            self.apply(&PairEvent::output(t_ns, pair, target, verdict.result))?;
            if let Some(greatest_error) = verdict.greatest_error {
                self.pairs.lock().difference(pair, target, greatest_error);
            }
        }
        Ok(())
    }

    /// Takes one side of a pair.
    fn exchange(&mut self, exchange: &Exchange, t_ns: u64) -> io::Result<()> {
        let ledger = &exchange.ledger;
        let Some(number) = ledger.pair else { return Ok(()) };
        let pair = number.get();
        let place = usize::try_from(pair - 1).unwrap_or(usize::MAX);
        let mut half = PairHalf::of_copy(exchange);
        if let (Some(window), Some(due)) = (ledger.window, self.due.get(place)) {
            let from_due_ns = ledger.started.plus(window.end_ns).since(due);
            half = half.with_from_due(from_due_ns);
            let of_target = self.from_due.iter().find(|(label, _)| *label == ledger.series.upstream);
            if let Some((_, durations)) = of_target.filter(|_| ledger.outcome == Outcome::Ok) {
                durations.record(from_due_ns);
            }
        }
        let side = half.account(&self.labels);
        if self.baseline == Some(ledger.series.upstream) {
            self.pairs.lock().show_side(number, None, &half, Some(exchange));
            return self.apply(&PairEvent::Baseline { t_ns, pair, side });
        }
        let Some(target) = self.targets.iter().position(|label| *label == ledger.series.upstream) else { return Ok(()) };
        self.pairs.lock().show_side(number, Some(target), &half, Some(exchange));
        // the recorded side is known from the start
        if let Some(recorded) = self.recorded.get_mut(place).and_then(Option::take) {
            self.pairs.lock().show_side(number, None, &PairHalf::of_account(&recorded, &self.labels), None);
            self.apply(&PairEvent::Baseline { t_ns, pair, side: recorded })?;
        }
        self.apply(&PairEvent::Target { t_ns, pair, target, side })
    }

    fn apply(&mut self, event: &PairEvent) -> io::Result<()> {
        event.apply(&mut self.pairs.lock(), &self.labels, self.started);
        match &mut self.file {
            Some(file) => file.0.write_all(&to_line(event)?),
            None => Ok(()),
        }
    }
}
