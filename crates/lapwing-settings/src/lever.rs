//! A setting that is turned on and off while requests pass, whatever the configuration says of it: what a trial tries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// How a lever stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeverPosition {
    /// As the configuration says.
    #[default]
    AsConfigured,
    /// Off.
    Off,
    /// On.
    On,
}

/// A lever, shared by who turns it and who obeys it. Clones are the same lever; reading one costs a load.
#[derive(Clone, Debug, Default)]
pub struct LeverSwitch(Arc<AtomicU8>);

impl LeverSwitch {
    /// Turns it.
    pub fn set(&self, position: LeverPosition) {
        self.0.store(position as u8, Relaxed);
    }

    /// Whether it is turned, either way.
    #[must_use]
    pub fn is_turned(&self) -> bool {
        self.0.load(Relaxed) != LeverPosition::AsConfigured as u8
    }

    /// Whether it is on, where the configuration says `configured`.
    #[must_use]
    #[inline]
    pub fn is_on(&self, configured: bool) -> bool {
        let position = self.0.load(Relaxed);
        if position == LeverPosition::AsConfigured as u8 { configured } else { position == LeverPosition::On as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lever_overrides_the_configuration_until_it_is_let_go() {
        let turned = LeverSwitch::default();
        let clone = turned.clone();
        assert!(clone.is_on(true) && !clone.is_on(false));
        assert!(!clone.is_turned());
        turned.set(LeverPosition::On);
        assert!(clone.is_turned() && clone.is_on(true) && clone.is_on(false));
        turned.set(LeverPosition::Off);
        assert!(!clone.is_on(true) && !clone.is_on(false));
        turned.set(LeverPosition::AsConfigured);
        assert!(clone.is_on(true) && !clone.is_on(false));
    }
}
