//! Properties of the whole proxy between clients and an upstream, or two, that send any bytes, in any pieces, at any time, each side in
//! cleartext or over TLS. The fuzz target `proxy` and a test that replays its corpus share them.
//!
//! A case is one proxy with its own runtime, clock and connections in memory, so it is the same every time. It must hold that
//!
//! - nothing panics, and every task rests when there is nothing to do;
//! - every request that began has one outcome, and none is in flight once both peers are gone;
//! - what the proxy writes is well-formed HTTP, as a second reader reads it (`messages`), over TLS that rustls takes;
//! - a complete request that the upstream got was sent by the client, complete, with the same body, and came once; a complete
//!   response that the client got was sent by the upstream, complete, with the same body, and came once, or is Lapwing's own;
//! - the same bytes in other pieces make the same messages;
//! - memory stays below a bound that grows with what was sent;
//! - afterwards the same proxy serves a plain exchange, and drains.

mod case;
mod laws;
mod messages;
mod player;
mod script;
#[cfg(test)]
mod tests;

pub use self::case::HeapProbe;
use self::case::run;
use self::laws::{check_messages, complete_messages};
use self::script::Script;

/// Runs the case that `bytes` stand for.
///
/// # Errors
///
/// The property that does not hold, in words.
pub fn fuzz(bytes: &[u8], heap: Option<HeapProbe>) -> Result<(), String> {
    let script = Script::read(bytes);
    let whole = run(&script, false, heap)?;
    check_messages(&script, &whole)?;
    if script.options.is_compared() && script.is_plain() {
        let split = run(&script, true, heap)?;
        check_messages(&script, &split)?;
        let messages = [&whole, &split].map(complete_messages);
        if let [Some(whole), Some(split)] = messages
            && whole != split
        {
            return Err(format!("other messages in other pieces: {whole:?}, byte by byte {split:?}"));
        }
    }
    Ok(())
}

/// What went over every connection in the case that `bytes` stand for, to look at a finding.
#[must_use]
pub fn transcript(bytes: &[u8]) -> String {
    let script = Script::read(bytes);
    match run(&script, false, None) {
        Ok(seen) => format!("{script:#?}\n{seen:#?}"),
        Err(broken) => format!("{script:#?}\n{broken}"),
    }
}
