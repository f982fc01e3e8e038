//! How many instructions the proxy and the profiler execute for one exchange, counted by valgrind's callgrind: a figure that
//! does not depend on the machine's load. Compares each count with `benches/baseline.json` and fails if one has grown by more
//! than 3 %.
//!
//! ```text
//! cargo bench --profile instructions --no-default-features --features jemalloc --bench instructions [-- --update]
//! ```
//!
//! `benches/check` runs this command. Each case runs in a separate process under callgrind: it warms up, then repeats its
//! exchange inside [`measured`], the only function in which instructions are counted. Counts are per exchange. Everything runs
//! on one thread. The allocator is jemalloc as in the shipped binary, and Cargo.lock pins it. The client and the upstream of an
//! exchange write and read prepared bytes; their instructions, counted without the proxy between them, are subtracted.
//!
//! Not deterministic are the seeds that `rand`, `RandomState` and `tokio::select!` take from the system, and timers. They change
//! a count by less than 0.5 % from run to run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod callgrind;
mod compare;
mod exchange;
mod h2;
mod peer;
mod profile;

use std::process::ExitCode;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A case to measure.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Prepares the case and returns the function that repeats its exchange; with `false`, the exchange goes without the proxy.
    prepare: fn(bool) -> Repeat,
    /// Whether the instructions without the proxy are subtracted.
    is_proxied: bool,
}

/// Repeats an exchange the given number of times.
pub(crate) type Repeat = Box<dyn FnMut(u64)>;

const CASES: &[Case] = &[
    Case { name: "http1_infer", prepare: exchange::http1_infer, is_proxied: true },
    Case { name: "held_infer", prepare: exchange::held_infer, is_proxied: true },
    Case { name: "dispatched_infer", prepare: exchange::dispatched_infer, is_proxied: true },
    Case { name: "shadow_unsampled", prepare: exchange::shadow_unsampled, is_proxied: true },
    Case { name: "shadow_full", prepare: exchange::shadow_full, is_proxied: true },
    Case { name: "shadow_copied", prepare: exchange::shadow_copied, is_proxied: true },
    Case { name: "shadow_discarded", prepare: exchange::shadow_discarded, is_proxied: true },
    Case { name: "shadow_quota", prepare: exchange::shadow_quota, is_proxied: true },
    Case { name: "shadow_quota_elsewhere", prepare: exchange::shadow_quota_elsewhere, is_proxied: true },
    Case { name: "grpc_infer", prepare: exchange::grpc_infer, is_proxied: true },
    Case { name: "chat_stream_64", prepare: exchange::chat_stream, is_proxied: true },
    Case { name: "otlp_receive", prepare: profile::otlp_receive, is_proxied: false },
    Case { name: "otlp_join", prepare: profile::otlp_join, is_proxied: false },
    Case { name: "merge", prepare: profile::merge, is_proxied: false },
    Case { name: "record", prepare: profile::record, is_proxied: false },
];

/// Exchanges before the count begins, in which caches and pools fill and tables grow.
pub(crate) const WARM: u64 = 300;
/// Exchanges that are counted.
pub(crate) const COUNTED: u64 = 500;

/// The only function in which callgrind counts; `callgrind.rs` names it on valgrind's command line.
#[inline(never)]
fn measured(repeat: &mut dyn FnMut(u64), n: u64) {
    repeat(std::hint::black_box(n));
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--one", name, path] => {
            let case = CASES.iter().find(|case| case.name == name).unwrap();
            let mut repeat = (case.prepare)(path == "proxied");
            repeat(WARM);
            measured(&mut repeat, COUNTED);
            ExitCode::SUCCESS
        }
        [] => compare::run(CASES, compare::Mode::Check),
        ["--update"] => compare::run(CASES, compare::Mode::Update),
        ["--print"] => compare::run(CASES, compare::Mode::Print),
        // `cargo test --benches` runs every target with this argument
        ["--test"] => ExitCode::SUCCESS,
        _ => {
            let text = "usage: instructions [--update | --print]\n\n\
                Counts instructions per exchange and compares them with benches/baseline.json.\n\n\
                --update  write the counts into benches/baseline.json\n\
                --print   show the counts and compare nothing";
            let is_asked = arguments == ["--help"];
            if is_asked {
                println!("{text}")
            } else {
                eprintln!("{text}")
            }
            if is_asked { ExitCode::SUCCESS } else { ExitCode::from(2) }
        }
    }
}
