//! The second level: answers in a Redis that several processes share.
//!
//! **What has to hold.** After a purge, a restart of an upstream, a change of a model's version or a failed verification in one process, no
//! process may give what was stored before. A restart of a process alone forgets nothing.
//!
//! **Why not the generations of `generation`.** They are numbers of one process and begin at 0 with it, so they can be no part of a key
//! that others look for. Shared keys are made without them ([`crate::KeyedRequest::shared`]).
//!
//! **Epochs.** Redis keeps an epoch of all answers, and one for each of 1,024 groups of models (a model's group follows from its name), and one
//! of requests that name no model. An epoch is 16 random bytes. A read asks for the two epochs that apply and the answer in one `MGET`, and
//! takes the answer only if it was sealed in both (`sealed`). So who writes a new epoch makes everything before it unreadable, for all
//! processes, with the one `SET`. An answer is stored with the epochs that were read *before* its upstream was asked: one that was on its
//! way during a purge is sealed in the old epoch, and unreadable. Without having read the epochs, a process stores nothing.
//!
//! - Random and not a counter, because Redis may forget: an epoch that was evicted or flushed is written anew, and a counter that begins
//!   again at 1 would bring back what was stored at its first 1.
//! - A master that fails over may lose its last writes, and so bring back an old epoch. Each process remembers the last epochs that it
//!   saw replaced; if one comes back in an answer to a question that was asked after it was replaced, it is replaced once more. Until one of
//!   them has done so, processes that never saw the newer epoch may give what was forgotten: a few milliseconds after the failover.
//! - While a process cannot reach Redis to write a new epoch, it neither reads nor stores what that concerns, and tries on. Others
//!   do not know yet.
//! - In a cluster, the keys of one `MGET` are on several nodes, which are read at the same time. An epoch is read from its master.
//!
//! **The first level of others.** What another process holds in memory is not asked for in Redis. So each looks at the epochs four times
//! a second, and with every read; when one has changed it says so ([`SharedScope`]), and the process forgets its own ([`POLL`] is the bound).
//!
//! **Time.** An answer carries the wall time at which it was asked for, and Redis drops it by its own clock too. Clocks of machines may be
//! 10 s apart; what comes from further in the future is refused.
//!
//! `epochs` has no clock and asks nobody; `answers` is what a data plane calls; `keeper` is its background; `keys` are names in Redis.

mod answers;
mod counts;
mod epochs;
mod inner;
mod keeper;
mod keys;
mod lookup;

pub use answers::SharedAnswers;
pub use counts::SharedCounts;
pub use epochs::SharedScope;
pub use keeper::{POLL, SharedKeeper};
pub use lookup::{SharedLookup, SharedMiss};
