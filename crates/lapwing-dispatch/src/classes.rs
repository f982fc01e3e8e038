//! The classes of the queue: when other settings are put in force, and what is counted of each.

use std::fmt::Debug;

use crate::ask::{QueueClass, QueueSettings};
use crate::class_counts::ClassCounts;
use crate::fair::Turns;
use crate::queue::DispatchQueue;

impl QueueSettings {
    /// The turn among its classes.
    pub(crate) fn turns(&self) -> Turns {
        Turns::new(self.classes.iter().map(|class| class.weight.max(1)).collect())
    }
}

impl<W: Debug> DispatchQueue<W> {
    /// Replaces the settings. Those who wait stay in the class of their name, or go to the last one.
    pub fn apply(&mut self, settings: QueueSettings) {
        self.turns = settings.turns();
        let (before, last) = (&self.settings.classes, settings.classes.len().saturating_sub(1));
        for lane in &mut self.lanes {
            let name = before.get(lane.class).map(|class| &class.name);
            let same = settings.classes.iter().position(|class| Some(&class.name) == name);
            lane.class = same.unwrap_or(last);
        }
        let counts = settings.classes.iter().map(|class| {
            let same = before.iter().position(|one| one.name == class.name);
            same.and_then(|at| self.counts.get_mut(at)).map(std::mem::take).unwrap_or_default()
        });
        self.counts = counts.collect();
        self.settings = settings;
    }

    /// The classes, each with what became of its requests since it is there.
    pub fn classes(&self) -> impl Iterator<Item = (&QueueClass, &ClassCounts)> {
        self.settings.classes.iter().zip(&self.counts)
    }

    /// Counts for a class.
    pub(crate) fn count(&mut self, class: usize, note: impl FnOnce(&mut ClassCounts)) {
        if let Some(counts) = self.counts.get_mut(class) {
            note(counts);
        }
    }
}
