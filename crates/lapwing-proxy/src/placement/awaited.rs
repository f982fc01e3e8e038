//! What a body has to tell before it is known where its request goes.

/// What a body has to tell before it is known where its request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AwaitedOfBody {
    pub(crate) model: bool,
    pub(crate) work: bool,
    /// The key of a split.
    pub(crate) key: bool,
}

impl AwaitedOfBody {
    /// The same and the work, and with `and_model` the model.
    pub(crate) const fn and_work(self, and_model: bool) -> Self {
        Self { work: true, model: self.model || and_model, ..self }
    }

    /// `None` if nothing is awaited.
    pub(crate) fn if_any(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}
