//! The access log: a line of JSON for each exchange of a client, with its stages, in a file or on standard output.
//!
//! Lines are made and written on a thread of their own. If it cannot keep pace, or the disk is full, lines are lost and counted; neither
//! a request nor the aggregator waits. A line has what the exchange was when it was recorded: spans that come later are not in it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

use lapwing_admin::access_line;
use lapwing_ledger::Exchange;
use lapwing_metrics::{Counter, Counters, Labels};

/// Exchanges that may wait for the thread, of about two kilobytes each.
const QUEUE: usize = 4096;
/// How long the last lines may take at the end: whoever reads standard output may have stopped.
const FLUSH: Duration = Duration::from_secs(2);
/// The path that stands for standard output.
const STDOUT: &str = "-";

/// The way to the access log's thread. Dropping it writes what waits, and ends the thread.
#[derive(Debug)]
pub(crate) struct AccessLog {
    queue: Option<SyncSender<Box<Exchange>>>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
    counters: Arc<Counters>,
}

impl AccessLog {
    /// Opens the file at its end, or standard output, and starts the thread.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or the thread not be started; the message names the file.
    pub(crate) fn open(path: &Path, labels: Arc<Labels>, counters: Arc<Counters>) -> Result<Self, String> {
        let named = |error: io::Error| format!("{}: {error}", path.display());
        let to: Box<dyn Write + Send> = if path == Path::new(STDOUT) {
            Box::new(io::stdout())
        } else {
            Box::new(OpenOptions::new().create(true).append(true).open(path).map_err(named)?)
        };
        Self::start(to, labels, counters).map_err(named)
    }

    fn start(to: Box<dyn Write + Send>, labels: Arc<Labels>, counters: Arc<Counters>) -> io::Result<Self> {
        let (queue, waiting) = sync_channel(QUEUE);
        let writer = Writer { to, labels, counters: counters.clone(), is_failing: false };
        let (ending, ended) = channel();
        std::thread::Builder::new().name("lapwing-access-log".to_owned()).spawn(move || {
            let _ending = ending;
            writer.run(&waiting);
        })?;
        Ok(Self { queue: Some(queue), ended, counters })
    }

    /// Hands an exchange over, or counts it as lost.
    pub(crate) fn push(&self, exchange: &Exchange) {
        let is_taken = self.queue.as_ref().is_some_and(|queue| queue.try_send(Box::new(exchange.clone())).is_ok());
        if !is_taken {
            self.counters.bump(Counter::AccessLogFull);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue = None;
        if self.ended.recv_timeout(FLUSH) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("access_log: the last lines were not written within {} s", FLUSH.as_secs());
        }
    }
}

/// Makes the lines and writes them, many at a time while many wait.
struct Writer {
    to: Box<dyn Write + Send>,
    labels: Arc<Labels>,
    counters: Arc<Counters>,
    /// Whether the last write failed: it is logged once, not for each line.
    is_failing: bool,
}

/// Bytes that are gathered before they are written.
const BUFFER: usize = 64 << 10;

impl Writer {
    fn run(mut self, waiting: &Receiver<Box<Exchange>>) {
        let (mut buffer, mut lines) = (Vec::with_capacity(BUFFER), 0);
        while let Ok(exchange) = waiting.recv() {
            lines += self.gather(&exchange, &mut buffer);
            loop {
                match waiting.try_recv() {
                    Ok(exchange) if buffer.len() < BUFFER => lines += self.gather(&exchange, &mut buffer),
                    Ok(exchange) => {
                        self.write(&mut buffer, &mut lines);
                        lines += self.gather(&exchange, &mut buffer);
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.write(&mut buffer, &mut lines);
        }
    }

    /// Appends the exchange's line. Returns how many lines that are.
    fn gather(&self, exchange: &Exchange, buffer: &mut Vec<u8>) -> u64 {
        match access_line(exchange, &self.labels) {
            Ok(line) => {
                buffer.extend_from_slice(&line);
                1
            }
            Err(_) => {
                self.counters.bump(Counter::AccessLogFailed);
                0
            }
        }
    }

    fn write(&mut self, buffer: &mut Vec<u8>, lines: &mut u64) {
        let written = self.to.write_all(buffer).and_then(|()| self.to.flush());
        if let Err(error) = &written {
            self.counters.add(Counter::AccessLogFailed, *lines);
            if !self.is_failing {
                tracing::warn!(%error, "access_log: lines cannot be written, and are counted as lost");
            }
        }
        self.is_failing = written.is_err();
        buffer.clear();
        *lines = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Ledger, Stamp};
    use lapwing_metrics::Config;

    /// Fails each write, or waits for a word before each.
    struct Stubborn(Option<Receiver<()>>);

    impl Write for Stubborn {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match &self.0 {
                None => Err(io::Error::other("no space left")),
                Some(word) => {
                    let _ = word.recv();
                    Ok(bytes.len())
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn exchange() -> Exchange {
        lapwing_ledger::merge(Ledger::open(Stamp::now(), 0), Vec::new())
    }

    fn log(to: Stubborn, counters: &Arc<Counters>) -> AccessLog {
        AccessLog::start(Box::new(to), Arc::new(Labels::bounded_by(&Config::default(), 1)), counters.clone()).unwrap()
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let counters = Arc::new(Counters::default());
        let log = log(Stubborn(None), &counters);
        (0..5).for_each(|_| log.push(&exchange()));
        drop(log);
        assert_eq!((counters.get(Counter::AccessLogFailed), counters.get(Counter::AccessLogFull)), (5, 0));
    }

    #[test]
    fn a_disk_that_does_not_answer_costs_lines_and_nobody_waits() {
        let counters = Arc::new(Counters::default());
        let (word, waits) = channel();
        let log = log(Stubborn(Some(waits)), &counters);
        let pushed = QUEUE + 4096;
        (0..pushed).for_each(|_| log.push(&exchange()));
        assert!(counters.get(Counter::AccessLogFull) > 0);
        drop(word);
        drop(log);
        assert_eq!(counters.get(Counter::AccessLogFailed), 0);
    }

    #[test]
    fn a_folder_is_no_file() {
        let error = AccessLog::open(&std::env::temp_dir(), Arc::new(Labels::bounded_by(&Config::default(), 1)), Arc::default())
            .unwrap_err();
        assert!(error.starts_with(&std::env::temp_dir().display().to_string()), "{error}");
    }
}
