//! The load of the machine by blocks of time.

use std::collections::VecDeque;

use super::{HostLoad, HostReading};
use crate::block::{BLOCK_NS, BLOCKS};
use lapwing_ledger::Stamp;

/// The load in one block of time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HostBlock {
    index: u64,
    load: HostLoad,
}

/// The load of the longest window. It takes 8 KiB.
#[derive(Debug, Default)]
pub(crate) struct HostTimeline {
    latest: Option<(Stamp, HostReading)>,
    blocks: VecDeque<HostBlock>,
}

impl HostTimeline {
    /// Whether a block of time is over since the latest reading.
    pub(crate) fn is_due(&self, now: Stamp) -> bool {
        self.latest.is_none_or(|(at, _)| now.as_ns() / BLOCK_NS > at.as_ns() / BLOCK_NS)
    }

    /// Takes a reading. The load since the one before is that of the blocks in between.
    pub(crate) fn take(&mut self, reading: HostReading, now: Stamp) {
        let Some((before_at, before)) = self.latest.replace((now, reading)) else { return };
        let (total, idle) = (reading.total.saturating_sub(before.total), reading.idle.saturating_sub(before.idle));
        let micros = now.since(before_at) as f64 / 1e3;
        if total == 0 || micros <= 0.0 {
            return;
        }
        let share = |part: u64| (part as f64 / total as f64).clamp(0.0, 1.0);
        let waited = reading.pressure_us.zip(before.pressure_us).map(|(now, before)| now.saturating_sub(before) as f64);
        let load = HostLoad {
            busy_share: 1.0 - share(idle),
            steal_share: share(reading.steal.saturating_sub(before.steal)),
            pressure_share: waited.map(|waited| (waited / micros).clamp(0.0, 1.0)),
        };
        let (first, last) = (before_at.as_ns() / BLOCK_NS, now.as_ns() / BLOCK_NS);
        for index in first.max(last.saturating_sub(BLOCKS as u64))..last {
            if self.blocks.len() == BLOCKS {
                self.blocks.pop_front();
            }
            self.blocks.push_back(HostBlock { index, load });
        }
    }

    /// The load of a block of time; `None` if it is not known.
    pub(crate) fn of(&self, index: u64) -> Option<HostLoad> {
        let at = self.blocks.binary_search_by_key(&index, |block| block.index).ok()?;
        self.blocks.get(at).map(|block| block.load)
    }

    /// The mean load from the block `from` on.
    pub(crate) fn mean(&self, from: u64) -> Option<HostLoad> {
        let loads: Vec<HostLoad> = self.blocks.iter().filter(|block| block.index >= from).map(|block| block.load).collect();
        let mean = |of: fn(&HostLoad) -> f64| loads.iter().map(of).sum::<f64>() / loads.len() as f64;
        let is_pressure_known = loads.iter().all(|load| load.pressure_share.is_some());
        (!loads.is_empty()).then(|| HostLoad {
            busy_share: mean(|load| load.busy_share),
            steal_share: mean(|load| load.steal_share),
            pressure_share: is_pressure_known.then(|| mean(|load| load.pressure_share.unwrap_or_default())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_load_between_two_readings() {
        let at = |seconds: u64| Stamp::default().plus(seconds * 1_000_000_000);
        let reading = |total, idle, steal, pressure_us| HostReading { total, idle, steal, pressure_us };
        let mut timeline = HostTimeline::default();
        assert!(timeline.is_due(at(100)));
        timeline.take(reading(1_000, 1_000, 0, Some(5)), at(100));
        assert!(!timeline.is_due(at(101)) && timeline.is_due(at(102)) && timeline.of(50).is_none() && timeline.mean(0).is_none());
        timeline.take(reading(1_400, 1_100, 40, Some(1_000_005)), at(102));
        let load = timeline.of(50).unwrap();
        assert_eq!((load.busy_share, load.steal_share, load.pressure_share), (0.75, 0.1, Some(0.5)));
        // a late reading counts for all blocks in between, and counters that went back count for none
        timeline.take(reading(1_800, 1_500, 40, None), at(106));
        assert_eq!((timeline.of(51), timeline.of(52)), (timeline.of(51), timeline.of(51)));
        assert_eq!(
            (timeline.of(52).unwrap().busy_share, timeline.of(52).unwrap().pressure_share, timeline.of(53)),
            (0.0, None, None)
        );
        timeline.take(reading(0, 0, 0, None), at(108));
        assert_eq!(timeline.of(53), None);
        assert_eq!(timeline.mean(51).unwrap().busy_share, 0.0);
        timeline.take(reading(1, 0, 0, None), at(1_000_000));
        assert_eq!(timeline.blocks.len(), BLOCKS);
    }
}
