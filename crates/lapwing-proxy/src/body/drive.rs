//! What a response arrives over in HTTP/1.1: a connection that no task drives, so the response's body does.

use std::fmt::Debug;
use std::task::Context;

use super::beside::GoesOn;
use crate::connection::QuietWaker;
use lapwing_ledger::Stamp;

/// What a response comes over, if its body has to drive it.
pub(crate) trait Drive: Debug + Send {
    /// Reads, writes and parses as far as possible without waiting.
    fn drive(&mut self, cx: &mut Context<'_>);
    /// What [`Self::drive`] has wake its task.
    fn waker(&self) -> &QuietWaker;
    /// When bytes of it were last read.
    fn last_read(&self) -> Option<Stamp>;
    /// Whether [`Self::acknowledge`] can have an effect.
    fn can_acknowledge(&self) -> bool;
    /// The response's head was read, and there is nothing to read of its body: asks the system to acknowledge the head at once, if that is
    /// still so. Returns whether it did.
    fn acknowledge(&mut self, cx: &mut Context<'_>) -> bool;
    /// The response was read to its end at `at`: another request may come. Dropping it instead closes it.
    fn release(self: Box<Self>, at: Stamp);
}

impl GoesOn for Box<dyn Drive> {
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        false // the answer is still to come over it
    }
}
