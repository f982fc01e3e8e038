//! The `lapwing` command.

#![forbid(unsafe_code)]

/// Requests allocate little, but often, and on every thread: jemalloc makes that cheap, and its own thread gives memory back. `.cargo/config.toml`
/// sets it up.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    lapwing::app::run()
}
