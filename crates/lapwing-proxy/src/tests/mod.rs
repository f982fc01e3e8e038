//! The whole data plane, under a seeded scheduler.

mod wakeups;
