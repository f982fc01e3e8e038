//! The classes of the queue when other settings are put in force.

use std::fmt::Debug;

use crate::ask::QueueSettings;
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
        let last = settings.classes.len().saturating_sub(1);
        for lane in &mut self.lanes {
            let name = self.settings.classes.get(lane.class).map(|class| &class.name);
            let same = settings.classes.iter().position(|class| Some(&class.name) == name);
            lane.class = same.unwrap_or(last);
        }
        self.settings = settings;
    }
}
