//! A model of the wake-ups: the whole proxy between a real client and a real server, on tasks and sockets whose every step a seed chooses
//! (`net::simulated`). A task that is not woken is not polled, and no time passes, so whatever waits for what nobody will tell it stands still
//! for good: then the case comes to rest before its end, and fails.
//!
//! A case is one client connection or several, each with exchanges at once or one after the other, over HTTP/1.1 or HTTP/2 on either side:
//! bodies of both directions below and above the windows, with and without length and trailers, answers after the request and beside it,
//! readers that are slow, and peers that leave; the same with a queue in front of the server, in which requests wait for each other. Time passes only in cases in which somebody leaves, for there a timer may be what notices.

mod bodies;
mod case;
mod client;
mod queue;
mod server;
mod streams;
mod tests;
